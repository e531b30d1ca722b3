package arm64_test

import (
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
)

func ExampleDecode() {
	code := []byte("\x5f\x24\x03\xd5\xfd\x7b\xbf\xa9\x00\x00\x00\xb0\xfe\xff\xff\x97\xfd\x7b\xc1\xa8\xc0\x03\x5f\xd6")
	const addr = 0x401100
	for off := 0; off+arm64.InstLen <= len(code); off += arm64.InstLen {
		in, err := arm64.Decode(code[off:])
		if err != nil {
			fmt.Printf("%#x: %v\n", addr+off, err)
			return
		}
		fmt.Printf("%#x %v", addr+off, in.Op)
		if in.PCRel != arm64.PCRelNone {
			fmt.Printf(" %#x", in.Target(addr+uint64(off)))
		}
		fmt.Println()
	}
	// Output:
	// 0x401100 bti
	// 0x401104 other
	// 0x401108 adrp 0x402000
	// 0x40110c bl 0x401104
	// 0x401110 other
	// 0x401114 ret
}

func ExampleRelocate() {
	src := []byte("\x80\x00\x00\x54") // b.eq
	in, err := arm64.Decode(src)
	if err != nil {
		fmt.Println(err)
		return
	}
	moved, err := arm64.Relocate(nil, in, src, 0x401000, 0x2401000)
	fmt.Printf("% x %v\n", moved, err)
	_, err = arm64.Relocate(nil, in, src, 0x401000, 0x9000_0000)
	fmt.Println(err)
	// Output:
	// 41 00 00 54 03 00 80 17 <nil>
	// moved b.cond: b at 0x90000004 cannot reach 0x401010: displacement -0x8fbfeff4 does not fit in 28 bits
}

func ExampleFtrace() {
	mem := arch.Bytes{Addr: 0x401000, Data: []byte("\x5f\x24\x03\xd5\x1f\x20\x03\xd5\x1f\x20\x03\xd5\x3f\x23\x03\xd5")} // bti c; nop; nop; paciasp
	var f arm64.Ftrace
	addr, err := f.CallAdjust(mem, 0x401000)
	fmt.Printf("%#x %v\n", addr, err)
	site := arch.Site{Addr: addr, Len: 4, Name: "main"}

	fmt.Println(arch.MakeCall(f, mem, site, 0x402000))
	err = arch.Do(f, mem, arm64.InitChange(site)) // once, before anything runs
	fmt.Printf("% x %v\n", mem.Data[4:12], err)
	err = arch.MakeCall(f, mem, site, 0x402000)
	fmt.Printf("% x %v\n", mem.Data[4:12], err)
	err = arch.MakeNop(f, mem, site, 0x402000)
	fmt.Printf("% x %v\n", mem.Data[4:12], err)
	// Output:
	// 0x401008 <nil>
	// 0x401004 (main): setting ftrace call site to call ftrace function: EINVAL: actual 1f:20:03:d5, expected e9:03:1e:aa
	// e9 03 1e aa 1f 20 03 d5 <nil>
	// e9 03 1e aa fe 03 00 94 <nil>
	// e9 03 1e aa 1f 20 03 d5 <nil>
}

func ExampleVeneers() {
	island := &arm64.Veneers{Addr: 0x500000, Size: 64}
	for _, to := range []uint64{0x600000, 0x2000_0000} {
		via, err := island.Route(0x401000, to)
		fmt.Printf("%#x %v\n", via, err)
	}
	code, err := island.Append(nil)
	fmt.Printf("% x %v\n", code, err)
	// Output:
	// 0x600000 <nil>
	// 0x500000 <nil>
	// 10 d8 0f 90 10 02 00 91 00 02 1f d6 <nil>
}
