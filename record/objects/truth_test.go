package objects_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// Where the calls are, as objdump sees it: nothing here uses the package that is tested.

// place is an instruction: in an object section and offset, and the function it is in with the offset there.
type place struct {
	section string
	off     uint64
	fn      string
	delta   uint64
}

func (p place) String() string {
	return fmt.Sprintf("%s+%#x (%s+%#x)", p.section, p.off, p.fn, p.delta)
}

var (
	dumpHeader = regexp.MustCompile(`^([0-9a-f]+) <(.*)>:$`)
	dumpInsn   = regexp.MustCompile(`^ *([0-9a-f]+):\s+(.*)$`)
	dumpReloc  = regexp.MustCompile(`^\s+([0-9a-f]+):\s+(R_\w+)\s+(\S+)$`)
	dumpCallee = regexp.MustCompile(`^\.?(_*mcount|__fentry__|__gnu_mcount_nc)([+-]0x[0-9a-f]+)?$`)
	dumpJALR   = regexp.MustCompile(`^jalrs?\s`)
	dumpLoads  = regexp.MustCompile(`^(d?addiu\s+(v1,v1|at,at|t9,t9|sp,sp)|d?addu\s+(v1|t9),|l[dw]\s+(v1,|t9,)|lui\s+at,|` +
		`dsll(32)?\s+v1,|move\s+at,ra)`)
	dumpCall = regexp.MustCompile(`^(call|bl|blx|jals?|brasl|pcaddu18i|blx?eq|blx?ne)[qlw]?(\.\w)?\s|^bctrl$`)
)

// objdumpOf is the disassembler that goes with a compiler.
func objdumpOf(cc string) string {
	if cc == "clang-19" {
		return "llvm-objdump-19"
	}
	if prefix, ok := strings.CutSuffix(cc, "gcc"); ok {
		return prefix + "objdump"
	}
	return "objdump"
}

// truth returns the calls of profiling functions in an object, sorted by section name and offset.
func truth(t testing.TB, objdump, path string) []place {
	t.Helper()
	testtool.Need(t, objdump)
	out, err := exec.Command(objdump, "-dr", "--no-show-raw-insn", path).Output()
	if err != nil {
		t.Fatalf("%s: %v", objdump, err)
	}
	type insn struct {
		at   uint64
		text string
	}
	var places []place
	var section, fn string
	var start uint64
	var last []insn // of the section so far
	add := func(at uint64) { places = append(places, place{section, at, fn, at - start}) }
	saved := -1 // index of the s390x call whose next instruction decides
	first := -1 // index of the MIPS instruction that begins to load the address
	loaded, loadedAt := false, uint64(0)
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		line := sc.Text()
		if rest, ok := strings.CutPrefix(line, "Disassembly of section "); ok {
			section, last = strings.TrimSuffix(rest, ":"), nil
			first = -1
			continue
		}
		if m := dumpHeader.FindStringSubmatch(line); m != nil {
			start, _ = strconv.ParseUint(m[1], 16, 64)
			fn = m[2]
			continue
		}
		if m := dumpReloc.FindStringSubmatch(line); m != nil {
			if !dumpCallee.MatchString(m[3]) || len(last) == 0 {
				continue
			}
			off, _ := strconv.ParseUint(m[1], 16, 64)
			in := last[len(last)-1]
			switch m[2] {
			// The call is the next jalr; what loads the address belongs to it.
			case "R_MIPS_CALL16", "R_MIPS_GOT_DISP", "R_MIPS_GOT16", "R_MIPS_HI16", "R_MIPS_LO16", "R_MIPS_HIGHEST",
				"R_MIPS_HIGHER", "R_MIPS_CALL_HI16", "R_MIPS_CALL_LO16", "R_MIPS_GOT_HI16", "R_MIPS_GOT_LO16",
				"R_MICROMIPS_CALL16", "R_MICROMIPS_GOT_DISP", "R_MICROMIPS_GOT16", "R_MICROMIPS_HI16", "R_MICROMIPS_LO16",
				"R_MICROMIPS_HIGHEST", "R_MICROMIPS_HIGHER":
				if first < 0 {
					first = len(last) - 1
				}
			case "R_MIPS_JALR", "R_MICROMIPS_JALR":
			case "R_SH_DIR32", "R_SH_GOT32":
				add(off)
			case "R_X86_64_64", "R_X86_64_PLTOFF64":
				if strings.HasPrefix(in.text, "movabs") {
					add(in.at)
				}
			case "R_X86_64_GOT64": // the call is the next indirect one; the loads belong to it where they stand in front of it
				loaded, loadedAt = true, in.at
			case "R_RISCV_CALL", "R_RISCV_CALL_PLT", "R_LARCH_GOT_PC_HI20":
				add(in.at)
			case "R_390_PLT32DBL", "R_390_PC32DBL":
				if strings.HasPrefix(in.text, "brasl") {
					if len(last) > 1 && last[len(last)-2].text == "stg\t%r14,8(%r15)" {
						saved = len(places)
					}
					add(in.at)
				}
			default:
				if dumpCall.MatchString(in.text) {
					add(in.at)
				}
			}
			continue
		}
		if m := dumpInsn.FindStringSubmatch(line); m != nil {
			at, _ := strconv.ParseUint(m[1], 16, 64)
			if loaded && strings.HasPrefix(m[2], "call") {
				n := len(last) - 1
				if n > 0 && strings.HasPrefix(last[n].text, "mov ") && last[n-1].at == loadedAt &&
					strings.HasSuffix(last[n].text, ","+m[2][strings.Index(m[2], "*")+1:]) {
					n-- // the second load, of the register that is called
				}
				if n >= 0 && last[n].at == loadedAt {
					add(loadedAt)
				} else {
					add(at)
				}
				loaded = false
			}
			last = append(last, insn{at, m[2]})
			if first >= 0 && dumpJALR.MatchString(m[2]) {
				for k := first + 1; k < len(last)-1; k++ {
					if !dumpLoads.MatchString(last[k].text) {
						first = len(last) - 1
					}
				}
				add(last[first].at)
				first = -1
			}
			if saved >= 0 {
				if m[2] == "lg\t%r14,8(%r15)" { // saved and restored around the call: all three are the site
					places[saved].off -= 6
					places[saved].delta -= 6
				}
				saved = -1
			}
		}
	}
	slices.SortFunc(places, comparePlaces)
	return places
}

func comparePlaces(a, b place) int {
	if c := strings.Compare(a.section, b.section); c != 0 {
		return c
	}
	switch {
	case a.off < b.off:
		return -1
	case a.off > b.off:
		return 1
	}
	return 0
}
