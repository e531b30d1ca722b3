//go:build linux

package tracee

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A recorder that expects another version finds no process that it can change.
func TestHomeVersion(t *testing.T) {
	b, err := os.ReadFile("../../../stub/src/home.h")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("HOME_VERSION = %d,", homeVersion); !strings.Contains(string(b), want) {
		t.Errorf("stub/src/home.h does not say %q", want)
	}
}
