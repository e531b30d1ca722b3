package elftest

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Images are the checked-in images: both classes, both byte orders, six machines, all linked forms.
func Images(t testing.TB) map[string][]byte {
	t.Helper()
	var paths []string
	for _, dir := range []string{"testdata", "../testdata"} { // of elfio, and of packages below it
		found, err := filepath.Glob(dir + "/*")
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	images := map[string][]byte{}
	for _, p := range paths {
		if st, err := os.Stat(p); err != nil || st.IsDir() {
			continue
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(raw), elf.ELFMAG) {
			images[filepath.Base(p)] = raw
		}
	}
	if len(images) < 12 {
		t.Fatalf("%d images in testdata", len(images))
	}
	return images
}
