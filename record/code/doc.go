// Package code reads the executable code of a linked image: where it is, how long its instructions are, which of them
// are padding, and where branches go.
//
//	text, err := code.New(f)
//	m := code.MachineOf(f.Header.Machine)
//	for b := text.From(addr); len(b) > 0; {
//		n, flow := m.Inst(b)
//		if n == 0 || flow == code.FlowEnds {
//			break
//		}
//		b = b[n:]
//	}
//
// Before code is overwritten, an index of branch targets says whether a branch goes into the middle of it:
//
//	targets := code.NewTargets(m)
//	targets.ScanAll(text, []code.Place{{Lo: addr, Hi: addr + 12}})
//	_, hit := targets.Lowest(addr, addr+12)
//
// It knows neither functions nor sites: package record decides where functions begin and what matters.
//
// # Machines
//
// amd64*.go and arm64*.go mirror each other, behind the interface [Machine]. The decoders are in arch/amd64 and
// arch/arm64.
//
// # Security
//
// New refuses images whose code overlaps, in the file or in memory. So all code together is not larger than the file,
// and everything takes time and memory linear in its size.
package code
