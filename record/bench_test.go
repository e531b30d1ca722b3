package record

import (
	"os"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"golang.org/x/sys/unix"
)

// BenchmarkFind reads the image named by FENTRY_BENCH_IMAGE, or a big library of the machine.
func BenchmarkFind(b *testing.B) {
	path := os.Getenv("FENTRY_BENCH_IMAGE")
	for _, p := range []string{"/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1", "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
		"/usr/bin/python3.11", "/usr/bin/git"} {
		if _, err := os.Stat(p); path == "" && err == nil {
			path = p
		}
	}
	fh, err := os.Open(path)
	if err != nil {
		b.Skip(err)
	}
	defer fh.Close()
	st, err := fh.Stat()
	if err != nil {
		b.Fatal(err)
	}
	m, err := unix.Mmap(int(fh.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(m)
	f, err := elfio.Parse(m)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(st.Size())
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		sites, err := Find(f, Options{})
		if err != nil {
			b.Fatal(err)
		}
		n = len(sites)
	}
	b.ReportMetric(float64(n), "functions")
}
