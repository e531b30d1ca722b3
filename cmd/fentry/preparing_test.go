package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Which file a program waits for is shown on terminals only.
func TestPreparing(t *testing.T) {
	var b strings.Builder
	if a := (&app{stderr: &b}); a.preparing() != nil {
		t.Error("shown where there is no terminal")
	}
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs a pseudo terminal: ", err)
	}
	defer tty.Close()
	if a := (&app{stderr: tty}); a.preparing() == nil {
		t.Error("not shown on a terminal")
	}
	if a := (&app{stderr: tty, quiet: true}); a.preparing() != nil {
		t.Error("shown with -q")
	}
}

// What a program does not wait for long is not shown, one of several files is as soon as all have taken long.
func TestPreparingDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		p := &preparing{w: &b}
		wait := func(file string, d time.Duration) {
			p.file(file)
			time.Sleep(d)
			synctest.Wait()
			p.file("")
		}
		wait("/bin/quick", progressDelay/2)
		time.Sleep(time.Minute)
		wait("/bin/quick", progressDelay/2)
		if b.Len() > 0 {
			t.Errorf("quick: %q", b.String())
		}
		time.Sleep(time.Minute)
		wait("/lib/one", progressDelay-1)
		wait("/lib/two", 2)
		wait("/lib/three", 1)
		time.Sleep(time.Minute)
		want := "\rpreparing file 4: two\x1b[K\r\x1b[K\rpreparing file 5: three\x1b[K\r\x1b[K"
		if b.String() != want {
			t.Errorf("%q\nwant %q", b.String(), want)
		}
	})
}
