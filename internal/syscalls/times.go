package syscalls

import "time"

// Times and clocks.

func (p *printer) timespec(b []byte) { p.pair("tv_sec", "tv_nsec", b) }
func (p *printer) timeval(b []byte)  { p.pair("tv_sec", "tv_usec", b) }

// pair appends two signed words.
func (p *printer) pair(one, two string, b []byte) {
	p.str("{")
	p.intField(one, int64(le64(b)))
	p.intField(two, int64(le64(b[8:])))
	p.str("}")
}

// date appends a time as a comment: in UTC, so that a trace reads the same everywhere.
func (p *printer) date(sec, ns int64) {
	if sec == 0 && ns == 0 {
		return
	}
	p.str(" /* ")
	layout := "2006-01-02T15:04:05-0700"
	if ns != 0 {
		layout = "2006-01-02T15:04:05.000000000-0700"
	}
	p.b = time.Unix(sec, ns).UTC().AppendFormat(p.b, layout)
	p.str(" */")
}

func (p *printer) timevals(b []byte) {
	p.bracketed(func() {
		for i := range 2 {
			p.sep(i)
			tv := b[16*i:]
			p.timeval(tv)
			sec, usec := int64(le64(tv)), int64(le64(tv[8:]))
			if usec >= 0 && usec < 1e6 {
				p.microDate(sec, usec)
			}
		}
	})
}

func (p *printer) microDate(sec, usec int64) {
	if sec == 0 && usec == 0 {
		return
	}
	layout := "2006-01-02T15:04:05-0700"
	if usec != 0 {
		layout = "2006-01-02T15:04:05.000000-0700"
	}
	p.str(" /* ")
	p.b = time.Unix(sec, usec*1000).UTC().AppendFormat(p.b, layout)
	p.str(" */")
}

// utimens appends two times, each of which can be "now" or "leave it".
func (p *printer) utimens(b []byte) {
	const now, omit = 1<<30 - 1, 1<<30 - 2
	p.bracketed(func() {
		for i := range 2 {
			p.sep(i)
			ts := b[16*i:]
			switch ns := le64(ts[8:]); ns {
			case now:
				p.str("UTIME_NOW")
			case omit:
				p.str("UTIME_OMIT")
			default:
				p.timespec(ts)
				p.date(int64(le64(ts)), int64(ns))
			}
		}
	})
}

func (p *printer) utimbuf(b []byte) {
	p.str("{")
	for i, name := range []string{"actime", "modtime"} {
		sec := int64(le64(b[8*i:]))
		p.intField(name, sec)
		p.date(sec, 0)
	}
	p.str("}")
}

func (p *printer) timezone(b []byte) {
	p.str("{")
	p.intField("tz_minuteswest", int64(int32(le32(b))))
	p.intField("tz_dsttime", int64(int32(le32(b[4:]))))
	p.str("}")
}

func (p *printer) itimerval(b []byte)  { p.itimer(b, p.timeval) }
func (p *printer) itimerspec(b []byte) { p.itimer(b, p.timespec) }

func (p *printer) itimer(b []byte, one func([]byte)) {
	p.str("{")
	p.field("it_interval")
	one(b)
	p.field("it_value")
	one(b[16:])
	p.str("}")
}

func (p *printer) timex(b []byte) {
	p.str("{")
	p.flagsField("modes", "adj", uint64(le32(b)))
	p.intField("offset", int64(le64(b[8:])))
	p.intField("freq", int64(le64(b[16:])))
	p.uintField("maxerror", le64(b[24:]))
	p.uintField("esterror", le64(b[32:]))
	p.flagsField("status", "sta", uint64(le32(b[40:])))
	p.intField("constant", int64(le64(b[48:])))
	p.uintField("precision", le64(b[56:]))
	p.intField("tolerance", int64(le64(b[64:])))
	p.field("time")
	p.timeval(b[72:])
	p.intField("tick", int64(le64(b[88:])))
	p.intField("ppsfreq", int64(le64(b[96:])))
	p.intField("jitter", int64(le64(b[104:])))
	p.intField("shift", int64(int32(le32(b[112:]))))
	p.intField("stabil", int64(le64(b[120:])))
	p.intField("jitcnt", int64(le64(b[128:])))
	p.intField("calcnt", int64(le64(b[136:])))
	p.intField("errcnt", int64(le64(b[144:])))
	p.intField("stbcnt", int64(le64(b[152:])))
	p.intField("tai", int64(int32(le32(b[160:]))))
	p.str("}")
}

func (p *printer) tms(b []byte) {
	p.str("{")
	for i, name := range []string{"tms_utime", "tms_stime", "tms_cutime", "tms_cstime"} {
		p.uintField(name, le64(b[8*i:]))
	}
	p.str("}")
}
