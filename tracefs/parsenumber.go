//go:build linux

package tracefs

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"syscall"
)

// Numbers, as the kernel reads them (lib/kstrtox.c).

// parseNumber reads a number as kstrtoul_from_user does, in base 10.
func parseNumber(s string) (uint64, error) { return parseUint(s, 10) }

// parseUint reads a number as kstrtoul does: digits, with a + in front and a newline behind. In base 0 those behind 0x are
// hexadecimal, and others behind 0 octal. Digits that make too large a number are ERANGE, whatever is behind them.
func parseUint(s string, base int) (uint64, error) {
	return parseDigits(strings.TrimPrefix(s, "+"), base)
}

// parseInt reads a number as kstrtol does, in any base: one that may have a - in front.
func parseInt(s string) (int64, error) {
	digits, negative := strings.CutPrefix(s, "-")
	if !negative {
		digits = strings.TrimPrefix(s, "+")
	}
	n, err := parseDigits(digits, 0)
	switch {
	case err != nil:
		return 0, err
	case negative && n <= 1<<63:
		return -int64(n), nil
	case n > math.MaxInt64:
		return 0, syscall.ERANGE
	}
	return int64(n), nil
}

func parseDigits(s string, base int) (uint64, error) {
	s, base = radix(strings.TrimSuffix(s, "\n"), base)
	rest := strings.TrimLeft(s, digitsOf[base])
	n, err := strconv.ParseUint(s[:len(s)-len(rest)], base, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, syscall.ERANGE
	case err != nil, rest != "":
		return 0, syscall.EINVAL
	}
	return n, nil
}

// digitsOf are the digits of a base.
var digitsOf = map[int]string{8: "01234567", 10: "0123456789", 16: "0123456789abcdefABCDEF"}

// radix tells the base of a number by its beginning, if that is to be told, and returns its digits.
func radix(s string, base int) (digits string, _ int) {
	switch {
	case base != 0:
		return s, base
	case !strings.HasPrefix(s, "0"):
		return s, 10
	case len(s) > 2 && s[1]|0x20 == 'x' && strings.IndexByte(digitsOf[16], s[2]) >= 0:
		return s[2:], 16
	}
	return s, 8
}
