package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/symbol"
)

// TestPrebuilt compares what is found in images that are kept beside their sources with what was seen to be right.
// FENTRY_UPDATE=1 writes the .golden files anew.
func TestPrebuilt(t *testing.T) {
	for _, img := range prebuilt(t) {
		t.Run(filepath.Base(img), func(t *testing.T) {
			got := listing(find(t, img))
			golden := strings.TrimSuffix(img, ".elf") + ".golden"
			if os.Getenv("FENTRY_UPDATE") == "1" {
				if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func prebuilt(t testing.TB) []string {
	t.Helper()
	imgs, err := filepath.Glob(filepath.Join("testdata", "prebuilt", "*.elf"))
	if err != nil || len(imgs) == 0 {
		t.Fatalf("no images: %v", err)
	}
	return imgs
}

// listing is one line a site: function, size, name, site, its place behind the function's start, length, bytes, kind,
// return address, source, reason.
func listing(sites []Site) string {
	var b strings.Builder
	for _, s := range sites {
		fmt.Fprintf(&b, "%x %d %s +%d %d [% x] %v %v %s", s.Func, s.Size, s.Display(), s.Addr-s.Func, s.Len, s.Bytes,
			s.Kind, s.Ret, s.Source)
		if s.Reason != "" {
			fmt.Fprintf(&b, " %s", s.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestExits asks for exit sleds too.
func TestExits(t *testing.T) {
	f := open(t, filepath.Join("testdata", "prebuilt", "xray-shared.elf"))
	with, err := Find(f, Options{XRayExits: true})
	if err != nil {
		t.Fatal(err)
	}
	without, err := Find(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	exits := 0
	for _, s := range with {
		if s.Reason == ReasonXRayExit {
			exits++
			if s.Addr <= s.Func || s.Kind != KindXRay {
				t.Errorf("%s: exit sled %+v", s.Name, s)
			}
		}
	}
	if exits < 5 || len(with) != len(without)+exits {
		t.Errorf("%d sites with %d exits, %d without", len(with), exits, len(without))
	}
}

// TestNames gives the profiling functions other names.
func TestNames(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "prebuilt", "fentry-shared.elf"))
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.ReplaceAll(string(b), "\x00__fentry__\x00", "\x00my_fentry_\x00")
	f, err := elfio.Parse([]byte(renamed))
	if err != nil {
		t.Fatal(err)
	}
	count := func(o Options) (n int) {
		sites, err := Find(f, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sites {
			if s.Traceable() {
				n++
			}
		}
		return n
	}
	if n := count(Options{Plain: PlainNone}); n != 0 {
		t.Errorf("%d sites of an unknown function", n)
	}
	if n := count(Options{Plain: PlainNone, Fentry: []string{"my_fentry_"}}); n != 7 {
		t.Errorf("%d sites, want 7", n)
	}
}

// TestSymbols gives a stripped image the names of the whole one.
func TestSymbols(t *testing.T) {
	testtool.Need(t, "gcc", "strip", "objcopy")
	dir := t.TempDir()
	img := filepath.Join(dir, "a.out")
	run(t, "gcc", "-g", "-O2", "-w", "-pg", "-mfentry", "-o", img, filepath.Join("testdata", "src", "basic.c"))
	want := find(t, img)
	run(t, "objcopy", "--only-keep-debug", img, img+".debug")
	run(t, "strip", img)
	run(t, "objcopy", "--add-gnu-debuglink="+img+".debug", img)
	f := open(t, img)
	tab, err := symbol.NewWith(f, symbol.Options{Path: img})
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	got, err := Find(f, Options{Symbols: tab})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := listing(want), listing(got); a != b {
		t.Errorf("got\n%s\nwant\n%s", b, a)
	}
	flt, err := NewFilter([]string{"func_*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	nameless := find(t, img)
	n := 0
	for i := range nameless {
		if flt.MatchSite(&nameless[i]) {
			n++
		}
	}
	if n < 10 {
		t.Errorf("%d functions are known by their address", n)
	}
}

// TestRefused takes files that are no images for this package.
func TestRefused(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "prebuilt", "fentry-shared.elf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		off  int
		val  byte
		want string
	}{
		{"machine", 18, 243, "EM_RISCV"},
		{"class", 4, 1, "32-bit"},
		{"object", 16, 1, "ET_REL"},
		{"core", 16, 4, "ET_CORE"},
	} {
		c := append([]byte(nil), b...)
		c[tt.off] = tt.val
		f, err := elfio.Parse(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Find(f, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestReasons(t *testing.T) {
	seen := make(map[Reason]bool)
	for _, r := range Reasons() {
		if seen[r.Code] || r.Text == "" || r.Code == "" || strings.ToLower(string(r.Code)) != string(r.Code) {
			t.Errorf("bad entry %+v", r)
		}
		seen[r.Code] = true
		if r.Code.Text() != r.Text {
			t.Errorf("%s: text %q", r.Code, r.Code.Text())
		}
	}
	for _, name := range []string{"setjmp", "__restore_rt", "__morestack"} {
		if r := contract(name); r == "" || !seen[r] {
			t.Errorf("%s: %q is not explained", name, r)
		}
	}
	if r := contract("main"); r != "" {
		t.Errorf("main: %s", r)
	}
	if Reason("").Text() != "" || Reason("x").Text() != "" {
		t.Error("text for an unknown reason")
	}
	// All of the constants must be there.
	src, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(src), " Reason = \"") + strings.Count(string(src), "= Reason(plain.") +
		strings.Count(string(src), "= Reason(golang."); n != len(seen) {
		t.Errorf("%d reason codes, %d explained", n, len(seen))
	}
}

func TestText(t *testing.T) {
	for k := KindNone; k <= KindPlain; k++ {
		b, _ := k.MarshalText()
		var got Kind
		if err := got.UnmarshalText(b); err != nil || got != k {
			t.Errorf("%s: %v, %v", b, got, err)
		}
	}
	for r := RetNone; r <= RetFP; r++ {
		b, _ := r.MarshalText()
		var got RetLoc
		if err := got.UnmarshalText(b); err != nil || got != r {
			t.Errorf("%s: %v, %v", b, got, err)
		}
	}
	var k Kind
	if k.UnmarshalText([]byte("kind-9")) == nil || Kind(99).String() != "kind-99" || RetLoc(9).String() != "ret-9" {
		t.Error("unknown kinds")
	}
}
