package record

import "github.com/fentry-dev/fentry/arch/amd64"

// argumentRegs are the registers a profiling function has to keep: the six of arguments, and rax, which counts vector
// arguments of functions with variable ones (System V psABI for x86-64, 3.2.3).
const argumentRegs = 1<<amd64.RAX | 1<<amd64.RCX | 1<<amd64.RDX | 1<<amd64.RSI | 1<<amd64.RDI | 1<<8 | 1<<9

// profShape is what the straight code of a supposed profiling function does.
type profShape struct {
	saved    uint16    // registers stored to the stack before anything is called
	restored uint16    // registers loaded from the stack again, or popped, behind the call
	class    profClass // by where it looks for the address its caller's function returns to
	empty    bool      // nothing but a return
}

// shapeOf decodes a supposed profiling function up to its return. Ordinary functions do not save rax and all argument
// registers before they have done anything; one that does, and goes on to load its caller's return address, has one
// purpose. glibc's looks like this:
//
//	sub $0x40,%rsp; mov %rax,(%rsp); mov %rcx,8(%rsp) ...
//	mov 0x40(%rsp),%rsi; mov 0x48(%rsp),%rdi      (_mcount: mov 8(%rbp),%rdi)
//	call __mcount_internal
//	mov 0x30(%rsp),%r9 ... add $0x40,%rsp; ret
func shapeOf(b []byte) profShape {
	var sh profShape
	depth := int64(0) // bytes pushed since entry
	called := false
	for range 64 {
		in, err := amd64.Decode(b)
		if err != nil {
			return profShape{}
		}
		raw := b[:in.Len]
		b = b[in.Len:]
		switch in.Op {
		case amd64.Nop, amd64.Endbr64:
			continue
		case amd64.Ret:
			sh.empty = !called && depth == 0 && sh.saved == 0
			return sh
		case amd64.Push:
			if r, ok := pushedReg(in); ok && !called {
				sh.saved |= 1 << r
			}
			depth += 8
			continue
		case amd64.Pop:
			if r, ok := poppedReg(in); ok && called {
				sh.restored |= 1 << r
			}
			depth -= 8
			continue
		case amd64.Call, amd64.CallInd:
			if called {
				return profShape{}
			}
			called = true
			continue
		case amd64.Other:
		default:
			return profShape{}
		}
		if k, ok := adjustsSP(in, raw); ok {
			depth -= k
			continue
		}
		m, ok := in.Move(raw)
		switch {
		case !ok:
		case m.Store && m.Base == amd64.RSP && !called:
			sh.saved |= 1 << m.Reg
		case m.Store:
		case called && m.Base == amd64.RSP:
			sh.restored |= 1 << m.Reg
		case m.Base == amd64.RBP && m.Disp == 8:
			sh.class = profMcount
		case m.Base == amd64.RSP && m.Disp == depth+8:
			sh.class = profFentry
		}
	}
	return profShape{}
}

// keepsArguments reports whether the function saves and restores what a profiling function must.
func (sh profShape) keepsArguments() bool {
	return sh.saved&argumentRegs == argumentRegs && sh.restored&argumentRegs == argumentRegs
}

// isProfiler takes what behaves like a profiling function, or does nothing.
func (amd64Machine) isProfiler(b []byte) bool {
	sh := shapeOf(b)
	return sh.empty || sh.keepsArguments()
}

// profilersIn looks at programs that have profiling functions linked in and were stripped: the targets of calls at
// function entries that are proven to be one by their own code.
func (m amd64Machine) profilersIn(im *image, p *profiling) {
	shapes := make(map[uint64]profClass)
	for i := range im.funcs.list {
		b := im.code.Range(im.funcs.list[i].Addr, im.funcs.extent(i, im.code))
		if len(b) > 128 {
			b = b[:128]
		}
		pc := im.funcs.list[i].Addr
		for n := 0; n < 16; n++ {
			in, err := amd64.Decode(b)
			if err != nil || in.Op.EndsBlock() {
				break
			}
			if c, ok := m.callAt(p, b, pc); ok {
				if c.slot {
					break
				}
				cl, seen := shapes[c.target]
				if !seen {
					if sh := shapeOf(im.code.From(c.target)); sh.keepsArguments() {
						cl = sh.class
					}
					shapes[c.target] = cl
				}
				if cl != profNone {
					p.targets[c.target], p.entries[c.target] = cl, cl
				}
				break
			}
			b, pc = b[in.Len:], pc+uint64(in.Len)
		}
	}
}
