package patch

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
)

const phentsize = 56 // sizeof(Elf64_Phdr)

// Memory is what to write into a process stopped at exec. Addresses are
// link-time addresses; the caller adds the load bias, AT_ENTRY minus OrigEntry.
type Memory struct {
	RX        []byte // contents of read-execute memory to map at RXAddr
	RXAddr    uint64
	RWAddr    uint64 // zeroed read-write memory to map
	RWSize    uint64
	Entry     uint64 // new AT_ENTRY
	OrigEntry uint64
	PhdrAddr  uint64 // new AT_PHDR, inside RX
	Phnum     int    // new AT_PHNUM
	NullCB    uint64 // initial gs base of the first thread
	Armed     uint64 // the word that arms all thunks
	Edits     []Edit
}

// Memory gives the plan as memory contents. The plan must have been made with
// Target [Process].
func (p *Plan) Memory() (*Memory, error) {
	if p.Options.Target != Process {
		return nil, fmt.Errorf("plan is for a file, not for a process")
	}
	armed, err := p.symbol("fentry_armed")
	if err != nil {
		return nil, err
	}
	null, err := p.symbol("fentry_null_cb")
	if err != nil {
		return nil, err
	}
	return &Memory{
		RX: p.RX, RXAddr: p.RXAddr, RWAddr: p.RW, RWSize: p.RWSize,
		Entry: p.Entry, OrigEntry: p.OrigEntry, PhdrAddr: p.phdrAddr, Phnum: len(p.phdrs) / phentsize,
		NullCB: null, Armed: armed, Edits: p.Edits(),
	}, nil
}

// headers puts a program header table for the changed process into the
// read-execute memory: the image's own, the added segments, and the merged
// unwind table. PT_PHDR tells ld.so the load bias, so it moves along.
func (p *Plan) headers(a *area) {
	progs := make([]elfio.Prog, 0, len(p.file.Progs)+3)
	progs = append(progs, p.file.Progs...)
	n := len(progs) + 2
	hasHdr, hasTLS := false, false
	last := 0
	for i := range progs {
		switch progs[i].Type {
		case elf.PT_GNU_EH_FRAME:
			hasHdr = true
		case elf.PT_TLS:
			hasTLS = true
		case elf.PT_LOAD:
			last = i
		}
	}
	if !hasHdr {
		n++
	}
	addTLS := !hasTLS && p.ptTLS.Type == elf.PT_TLS
	if addTLS {
		n++
	}
	at, b := a.grow(n*phentsize, 8)
	p.phdrAddr = at
	rxEnd := p.RXAddr + uint64(len(a.buf))
	added := []elfio.Prog{
		{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Vaddr: p.RW, Paddr: p.RW, Memsz: p.RWSize, Align: 4096},
		{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Vaddr: p.RXAddr, Paddr: p.RXAddr, Filesz: rxEnd - p.RXAddr, Memsz: rxEnd - p.RXAddr, Align: 4096},
	}
	progs = append(progs[:last+1:last+1], append(added, progs[last+1:]...)...)
	if !hasHdr {
		progs = append(progs, elfio.Prog{Type: elf.PT_GNU_EH_FRAME, Flags: elf.PF_R, Align: 4})
	}
	if addTLS {
		progs = append(progs, p.ptTLS)
	}
	p.phdrs = make([]byte, 0, n*phentsize)
	for _, pr := range progs {
		switch pr.Type {
		case elf.PT_PHDR:
			pr.Vaddr, pr.Paddr = at, at
			pr.Filesz, pr.Memsz = uint64(n*phentsize), uint64(n*phentsize)
		case elf.PT_TLS:
			if p.ptTLS.Type == elf.PT_TLS {
				pr.Memsz = p.ptTLS.Memsz
			}
		case elf.PT_GNU_EH_FRAME:
			pr.Vaddr, pr.Paddr = p.ehFrameHdr[0], p.ehFrameHdr[0]
			pr.Filesz, pr.Memsz = p.ehFrameHdr[1], p.ehFrameHdr[1]
		}
		p.phdrs = le.AppendUint32(p.phdrs, uint32(pr.Type))
		p.phdrs = le.AppendUint32(p.phdrs, uint32(pr.Flags))
		for _, v := range [...]uint64{pr.Off, pr.Vaddr, pr.Paddr, pr.Filesz, pr.Memsz, pr.Align} {
			p.phdrs = le.AppendUint64(p.phdrs, v)
		}
	}
	copy(b, p.phdrs)
}
