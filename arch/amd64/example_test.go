package amd64_test

import (
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
)

func ExampleDecode() {
	code := []byte("\xf3\x0f\x1e\xfa\x55\x48\x8d\x3d\xf4\x0e\x00\x00\xe8\xef\xff\xff\xff\x5d\xc3")
	const addr = 0x401100
	for off := 0; off < len(code); {
		in, err := amd64.Decode(code[off:])
		if err != nil {
			fmt.Printf("%#x: %v\n", addr+off, err)
			return
		}
		fmt.Printf("%#x %d %v", addr+off, in.Len, in.Op)
		if in.PCRel != amd64.PCRelNone {
			fmt.Printf(" %#x", in.Target(addr+uint64(off)))
		}
		fmt.Println()
		off += in.Len
	}
	// Output:
	// 0x401100 4 endbr64
	// 0x401104 1 push
	// 0x401105 7 other 0x402000
	// 0x40110c 5 call 0x401100
	// 0x401111 1 pop
	// 0x401112 1 ret
}

func ExampleRelocate() {
	src := []byte{0x74, 0x10} // je
	in, err := amd64.Decode(src)
	if err != nil {
		fmt.Println(err)
		return
	}
	moved, err := amd64.Relocate(nil, in, src, 0x401000, 0x501000)
	fmt.Printf("% x %v\n", moved, err)
	_, err = amd64.Relocate(nil, in, src, 0x401000, 0x7f00_0000_0000)
	fmt.Println(err)
	// Output:
	// 0f 84 0c 00 f0 ff <nil>
	// moved jcc at 0x7f0000000000 cannot reach 0x401012: displacement -0x7effffbfeff4 does not fit in 32 bits
}

func ExampleFtrace() {
	mem := arch.Bytes{Addr: 0x401000, Data: []byte("\x0f\x1f\x44\x00\x00\x55\x48\x89\xe5\xc3")}
	site := arch.Site{Addr: 0x401000, Len: 5, Name: "main"}
	var f arch.Ftrace = amd64.Ftrace{}

	err := arch.MakeCall(f, mem, site, 0x402000)
	fmt.Printf("% x %v\n", mem.Data[:5], err)
	err = arch.ModifyCall(f, mem, site, 0x403000, 0x404000)
	fmt.Println(err)
	err = arch.MakeNop(f, mem, site, 0x402000)
	fmt.Printf("% x %v\n", mem.Data[:5], err)

	site.Addr += 5
	fmt.Printf("%+v\n", arch.MakeCall(f, mem, site, 0x402000))
	// Output:
	// e8 fb 0f 00 00 <nil>
	// 0x401000 (main): updating ftrace call site to call a different ftrace function: EINVAL: actual e8:fb:0f:00:00, expected e8:fb:1f:00:00
	// 0f 1f 44 00 00 <nil>
	// ------------[ ftrace bug ]------------
	// ftrace failed to modify
	// [<0000000000401005>] main
	//  actual:   55:48:89:e5:c3
	//  expected: 0f:1f:44:00:00
	// Setting ftrace call site to call ftrace function
	//  expected tramp: 402000
}
