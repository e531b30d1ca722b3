package spec

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestGenerated compares the files made from the table with the table.
func TestGenerated(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		have, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if d := cmp.Diff(want, string(have)); d != "" {
			t.Errorf("%s is not what the table says; run go generate ./internal/format\n%s", name, d)
		}
	}
}

// TestTable checks the table itself: fields do not overlap and lie where their
// types may lie.
func TestTable(t *testing.T) {
	entry := append(slices.Clone(Chunk), Index...)
	slices.SortFunc(entry, func(a, b Field) int { return a.Off - b.Off })
	structs := append(slices.Clone(Configs),
		Struct{Name: "header", Fields: Header, Size: StatesOff},
		Struct{Name: "chunk", Fields: Chunk, Size: ChunkHeader},
		Struct{Name: "index", Fields: entry, Size: ChunkHeader},
		Struct{Name: "index header", Fields: IndexHead, Size: IndexHeader},
		Struct{Name: "segment", Fields: Segment, Size: SegmentSize},
		Struct{Name: "range", Fields: Range, Size: RangeEntry},
		Struct{Name: "map", Fields: Map, Size: MapEntry},
		Struct{Name: "switched off", Fields: SwitchedOff, Size: SwitchedOffEntry},
		Struct{Name: "sched", Fields: Sched, Size: SchedEntry},
		Struct{Name: "compressed", Fields: Compressed, Size: CompressedHead},
		Struct{Name: "profile", Fields: Profile, Size: ProfileEntry})
	for _, s := range structs {
		end := 0
		for _, f := range s.Fields {
			if f.Off < end || f.Off%f.Align() != 0 {
				t.Errorf("%s.%s at %d: overlaps or is not aligned", s.Name, f.Name, f.Off)
			}
			end = f.Off + f.Size()
		}
		if end > s.Size {
			t.Errorf("%s ends at %d, there is room for %d", s.Name, end, s.Size)
		}
	}
	types := map[uint32]bool{}
	for _, r := range Records {
		if types[r.Type] || r.Type == 0 || r.Type > RecordTypeMask || r.Words() > RecordWords {
			t.Errorf("record %s of type %d: not unique, or out of bounds", r.Name, r.Type)
		}
		types[r.Type] = true
	}
	seen := map[string]bool{}
	for _, g := range slices.Concat(TraceGroups(), TraceTexts(), ConfigGroups(), ConfigTexts()) {
		for _, c := range g.Consts {
			if seen[c.Name] {
				t.Errorf("%s is there twice", c.Name)
			}
			seen[c.Name] = true
		}
	}
}

// TestUsed finds what is in the table and nobody reads or writes: a constant must
// occur in a source file that is neither generated nor a test.
func TestUsed(t *testing.T) {
	words := map[string]bool{}
	goLocal := regexp.MustCompile(`\b[A-Z]\w+`)
	goName := regexp.MustCompile(`\bformat\.\w+`)
	cName := regexp.MustCompile(`\b[A-Z][A-Z0-9_]+\b|(\.|->)\w+`)
	generated := regexp.MustCompile(`(?m)^(//|/\*).*Code generated .* DO NOT EDIT\.`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "spec") {
				return fs.SkipDir
			}
			return err
		}
		find := cName
		switch filepath.Ext(path) {
		case ".c", ".h", ".S":
		case ".go":
			if strings.HasSuffix(path, "_test.go") {
				return nil
			}
			find = goName
		default:
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil || generated.Match(b) {
			return err
		}
		for _, w := range find.FindAllString(string(b), -1) {
			words[w] = true
		}
		if filepath.Base(filepath.Dir(path)) == "format" {
			for _, w := range goLocal.FindAllString(string(b), -1) {
				words["format."+w] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range append(TraceGroups(), TraceTexts()...) {
		for _, c := range g.Consts {
			if !words["FT_"+c.Name] && !words["format."+GoName(c.Name)] {
				t.Errorf("%s: nobody uses it", c.Name)
			}
		}
	}
	members := map[string]bool{} // of structures that C has as such
	for _, s := range Configs {
		for _, f := range s.Fields {
			members[s.Prefix+"_O_"+f.Name] = true
			if m := strings.ToLower(f.Name); !words["."+m] && !words["->"+m] {
				t.Errorf("%s.%s: the runtime does not read it", s.Name, m)
			}
			if !words["format."+GoName(s.Prefix+"_O_"+f.Name)] {
				t.Errorf("%s.%s: no patcher writes it", s.Name, f.Name)
			}
		}
	}
	for _, g := range append(ConfigGroups(), ConfigTexts()...) {
		for _, c := range g.Consts {
			if !members[c.Name] && !words[c.Name] && !words["format."+GoName(c.Name)] {
				t.Errorf("%s: nobody uses it", c.Name)
			}
		}
	}
}
