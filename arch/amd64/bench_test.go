package amd64

import (
	"debug/elf"
	"testing"
)

// BenchmarkDecode decodes the text of an installed program from end to end.
func BenchmarkDecode(b *testing.B) {
	for _, file := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3", "/usr/bin/perf"} {
		f, err := elf.Open(file)
		if err != nil {
			b.Logf("%v", err)
			continue
		}
		s := f.Section(".text")
		if s == nil {
			b.Fatalf("%s: no .text", file)
		}
		code, err := s.Data()
		f.Close()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(file, func(b *testing.B) {
			b.SetBytes(int64(len(code)))
			b.ReportAllocs()
			insts := 0
			for b.Loop() {
				for off := 0; off < len(code); insts++ {
					in, err := Decode(code[off:])
					if err != nil {
						off++
						continue
					}
					off += in.Len
				}
			}
			b.ReportMetric(float64(insts)/b.Elapsed().Seconds()/1e6, "Minst/s")
		})
	}
}

func BenchmarkIsNops(b *testing.B) {
	code := []byte("\x0f\x1f\x44\x00\x00\x55")
	for b.Loop() {
		if IsNops(code) != 5 {
			b.Fatal("not a nop")
		}
	}
}
