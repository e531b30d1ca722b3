package ehframe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// runText are the entries that pieces of code become, in runs.
func runText(pieces ...[]byte) string {
	var run Run
	var out []string
	pc := uint64(0x1000)
	for _, code := range pieces {
		if !run.Add(amd64CIE, pc, 8, code) {
			out = append(out, fmt.Sprintf("%#x+%d % x", run.PC, run.Size, run.Instructions))
			run.Reset()
			run.Add(amd64CIE, pc, 8, code)
		}
		pc += 8
	}
	return strings.Join(append(out, fmt.Sprintf("%#x+%d % x", run.PC, run.Size, run.Instructions)), "; ")
}

func TestRun(t *testing.T) {
	push := []byte{cfaAdvance | 1, cfaDefOff, 16, cfaOffset | 3, 2}
	args := []byte{cfaAdvance | 2, cfaGNUArgs, 16}
	for _, tt := range []struct {
		name   string
		pieces [][]byte
		want   string
	}{
		{"no rows", [][]byte{nil, nil, nil}, "0x1000+24 "},
		{"one", [][]byte{push}, "0x1000+8 0a 41 0e 10 83 02"},
		{"two", [][]byte{push, push}, "0x1000+16 0a 41 0e 10 83 02 47 0b 0a 41 0e 10 83 02"},
		{"between others", [][]byte{nil, push, nil, nil}, "0x1000+32 48 0a 41 0e 10 83 02 47 0b"},
		{"rows at once", [][]byte{push[1:], nil}, "0x1000+16 0a 0e 10 83 02 48 0b"},
		{"what is not brought back", [][]byte{nil, args, nil}, "0x1000+8 ; 0x1008+8 42 2e 10; 0x1010+8 "},
		{"a row behind the piece", [][]byte{{cfaAdvance | 9, cfaDefOff, 16}, nil}, "0x1000+8 0a 49 0e 10; 0x1008+8 "},
	} {
		if got := runText(tt.pieces...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := strings.Count(runText(slices.Repeat([][]byte{push}, 2*MaxRun+1)...), ";"); got != 2 {
		t.Errorf("%d pieces are in %d runs", 2*MaxRun+1, got+1)
	}
	var run Run
	other := *amd64CIE
	if !run.Add(amd64CIE, 0x1000, 8, nil) || run.Add(amd64CIE, 0x1010, 8, nil) || run.Add(&other, 0x1008, 8, nil) {
		t.Error("pieces that are not contiguous, or of different CIEs, are joined")
	}
}

// FuzzRun: the rows of a run are those of its pieces, at every address.
func FuzzRun(f *testing.F) {
	f.Add([]byte{5, cfaAdvance | 1, cfaDefOff, 16, cfaOffset | 3, 2, 0, 3, cfaAdvance | 4, cfaDefReg, 6})
	f.Add([]byte{1, cfaRemember, 0, 2, cfaGNUArgs, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		const size = 16
		var run Run
		var pieces [][]byte
		check := func() {
			got, err := run.AppendRows(nil)
			for k, code := range pieces {
				alone := FDE{PC: run.PC + uint64(k)*size, Size: size, CIE: amd64CIE, Instructions: code}
				want, wantErr := alone.AppendRows(nil)
				if wantErr != nil {
					if err == nil {
						t.Fatalf("the run has rows, its piece %d has none: %v", k, wantErr)
					}
					return
				}
				for at := uint64(0); at < size && err == nil; at++ {
					if a, b := rowOf(want, at), rowOf(got, uint64(k)*size+at); a != b {
						t.Fatalf("piece %d, %d: %+v, want %+v", k, at, b, a)
					}
				}
			}
			if err != nil {
				t.Fatalf("pieces have rows, their run has none: %v", err)
			}
		}
		for pc := uint64(0x1000); len(b) > 0; pc += size {
			n := min(int(b[0]), len(b)-1)
			code := b[1 : 1+n]
			b = b[1+n:]
			if !run.Add(amd64CIE, pc, size, code) {
				check()
				run.Reset()
				pieces = nil
				if !run.Add(amd64CIE, pc, size, code) {
					t.Fatal("a piece is in no run")
				}
			}
			pieces = append(pieces, code)
		}
		if run.Size > 0 {
			check()
		}
	})
}

// rowOf is the row of an address, without where it begins.
func rowOf(rows []Row, at uint64) Row {
	k := 0
	for k+1 < len(rows) && rows[k+1].At <= at {
		k++
	}
	r := rows[k]
	r.At = 0
	return r
}
