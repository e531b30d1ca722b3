package amd64

import (
	"bytes"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// The rule tells thunks by their code, so the code must be what thunks have.
func TestThunkRetCode(t *testing.T) {
	for _, k := range []arch.ThunkKind{arch.ThunkGraph, arch.ThunkMcount} {
		th := Thunk{Addr: 0x10000, Switch: 0x20000, Enter: 0x30000, Exit: 0x30100, Body: 0x5000, ID: 7, Kind: k}
		b := make([]byte, arch.ThunkSize)
		if err := th.Encode(b); err != nil {
			t.Fatal(err)
		}
		if got := b[thunkRet:][:len(thunkRetCode)]; !bytes.Equal(got, thunkRetCode[:]) {
			t.Errorf("%v: % x behind the body, want % x", k, got, thunkRetCode)
		}
	}
}
