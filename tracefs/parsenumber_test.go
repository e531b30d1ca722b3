//go:build linux

package tracefs

import (
	"math"
	"syscall"
	"testing"
)

// TestParseNumbers: what numbers are, as the kernel's kstrtoul and kstrtol have it.
func TestParseNumbers(t *testing.T) {
	const invalid, large = syscall.EINVAL, syscall.ERANGE
	for _, tt := range []struct {
		text string
		of   [3]any // in base 10, in any base, with a sign in any base: a number, or an error
	}{
		{"0", [...]any{0, 0, 0}},
		{"10", [...]any{10, 10, 10}},
		{"+10\n", [...]any{10, 10, 10}},
		{"010", [...]any{10, 8, 8}},
		{"00010\n", [...]any{10, 8, 8}},
		{"08", [...]any{8, invalid, invalid}},
		{"0x1F", [...]any{invalid, 31, 31}},
		{"+0Xf", [...]any{invalid, 15, 15}},
		{"0x", [...]any{invalid, invalid, invalid}},
		{"0xg", [...]any{invalid, invalid, invalid}},
		{"0b1", [...]any{invalid, invalid, invalid}},
		{"0o7", [...]any{invalid, invalid, invalid}},
		{"1_0", [...]any{invalid, invalid, invalid}},
		{"", [...]any{invalid, invalid, invalid}},
		{"\n", [...]any{invalid, invalid, invalid}},
		{"1\n\n", [...]any{invalid, invalid, invalid}},
		{" 1", [...]any{invalid, invalid, invalid}},
		{"1 ", [...]any{invalid, invalid, invalid}},
		{"++1", [...]any{invalid, invalid, invalid}},
		{"-1", [...]any{invalid, invalid, -1}},
		{"-010", [...]any{invalid, invalid, -8}},
		{"-0x10", [...]any{invalid, invalid, -16}},
		{"-", [...]any{invalid, invalid, invalid}},
		{"-+1", [...]any{invalid, invalid, invalid}},
		{"9223372036854775807", [...]any{math.MaxInt64, math.MaxInt64, math.MaxInt64}},
		{"-9223372036854775808", [...]any{invalid, invalid, math.MinInt64}},
		{"-9223372036854775809", [...]any{invalid, invalid, large}},
		{"9223372036854775808", [...]any{uint64(1) << 63, uint64(1) << 63, large}},
		{"18446744073709551615", [...]any{uint64(math.MaxUint64), uint64(math.MaxUint64), large}},
		{"0xffffffffffffffff", [...]any{invalid, uint64(math.MaxUint64), large}},
		{"18446744073709551616x", [...]any{large, large, large}},
		{"0x10000000000000000", [...]any{invalid, large, large}},
		{"02000000000000000000000", [...]any{large, large, large}},
	} {
		tens, err10 := parseUint(tt.text, 10)
		all, err0 := parseUint(tt.text, 0)
		signed, errSigned := parseInt(tt.text)
		for i, got := range []struct {
			n   uint64
			err error
		}{{tens, err10}, {all, err0}, {uint64(signed), errSigned}} {
			var n uint64
			var err error
			switch v := tt.of[i].(type) {
			case int:
				n = uint64(v)
			case uint64:
				n = v
			case syscall.Errno:
				err = v
			}
			if got.n != n || got.err != err {
				t.Errorf("%q in way %d: %d, %v; want %d, %v", tt.text, i, got.n, got.err, n, err)
			}
		}
	}
}
