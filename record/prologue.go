package record

// verifyFrame decodes the bytes between a function's first instruction and its call of mcount and returns "" when the
// caller's return address is at 8(%rbp) behind them.
func verifyFrame(b []byte) Reason {
	if len(b) >= 4 && string(b[:4]) == endbr64 {
		b = b[4:]
	}
	if len(b) >= 4 && b[0] == 0x55 && string(b[1:4]) == "\x48\x89\xe5" {
		return ""
	}
	return ReasonNoFramePointer
}
