package record

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// swapsTest is a function, and whether it is one that copies pieces of its stack.
type swapsTest struct {
	name, body string
	want       bool
}

// TestSwaps: functions that copy pieces of their stack are told by what they do behind that, and by nothing less.
func TestSwaps(t *testing.T) {
	testSwaps(t, onAMD64, fn, fn("_start", "ud2")+fn("f", "mov $1,%eax\nret"), "mov $1,%eax\n", []swapsTest{
		{"by rax", "add %rax,%rsp\nadd %rax,%rbp\nret", true},
		{"by r9", "add %r9,%rsp\nadd %r9,%rbp\nret", true},
		{"by rdi, behind a call", "call f\nadd %rdi,%rsp\nadd %rdi,%rbp\nret", true},
		{"what a call has returned", "call f\ntest %rax,%rax\nje 1f\nmov %rax,%rsp\n1: ret", true},
		{"by two registers", "add %rax,%rsp\nadd %rcx,%rbp\nret", false},
		{"by rax and r8", "add %rax,%rsp\nadd %r8,%rbp\nret", false},
		{"the other way round", "add %rax,%rbp\nadd %rax,%rsp\nret", false},
		{"with something between", "add %rax,%rsp\nnop\nadd %rax,%rbp\nret", false},
		{"halves of registers", "add %eax,%esp\nadd %eax,%ebp\nret", false},
		{"another condition", "call f\ntest %rax,%rax\njne 1f\nmov %rax,%rsp\n1: ret", false},
		{"another register", "call f\ntest %rax,%rax\nje 1f\nmov %rax,%rbx\n1: ret", false},
		{"in a constant", "movabs $0xc5014890c4014890,%rax\nret", false},
	})
}

// TestSwapsARM64 is TestSwaps for AArch64.
func TestSwapsARM64(t *testing.T) {
	testSwaps(t, onARM64, afn, afn("_start", "udf #0")+afn("f", "mov x0, #1\nret"), "mov x2, #1\n", []swapsTest{
		{"by x0", "add sp, sp, x0\nadd x29, x29, x0\nret", true},
		{"by x19", "add sp, sp, x19\nadd x29, x29, x19\nret", true},
		{"by x7, behind a call", "bl f\nadd sp, sp, x7\nadd x29, x29, x7\nret", true},
		{"what a call has returned", "bl f\ncbz x0, 1f\nmov sp, x0\n1: ret", true},
		{"by two registers", "add sp, sp, x0\nadd x29, x29, x1\nret", false},
		{"the other way round", "add x29, x29, x0\nadd sp, sp, x0\nret", false},
		{"with something between", "add sp, sp, x0\nnop\nadd x29, x29, x0\nret", false},
		{"shifted", "add sp, sp, x0, lsl #1\nadd x29, x29, x0, lsl #1\nret", false},
		{"half of a register", "add sp, sp, w0, uxtw\nadd x29, x29, w0, uxtw\nret", false},
		{"another condition", "bl f\ncbnz x0, 1f\nmov sp, x0\n1: ret", false},
		{"half of what a call has returned", "bl f\ncbz w0, 1f\nmov sp, x0\n1: ret", false},
		{"another register", "bl f\ncbz x0, 1f\nmov x1, x0\n1: ret", false},
	})
}

// testSwaps has each body, behind an instruction, be that of function g, beside others.
func testSwaps(t *testing.T, m *target, fn func(name, body string) string, others, first string, tests []swapsTest) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img := m.asm(t, ".text\n"+others+fn("g", first+tt.body), "-static", "-no-pie")
			if got := MaySwap(open(t, img)); tt.want && !got {
				t.Error("not seen in the image")
			}
			for _, s := range findWith(t, img, Options{Plain: PlainAuto}) {
				if want := tt.want && s.Name == "g"; s.Swaps != want {
					t.Errorf("%s: %v, want %v (%s)", s.Name, s.Swaps, want, s.Reason)
				}
			}
		})
	}
}

// LoadsSwaps is true of what has Python's interpreter in it, or calls one in a library.
func TestLoadsSwaps(t *testing.T) {
	testtool.Need(t, "gcc")
	for text, want := range map[string]bool{
		fn("Py_BytesMain", "ret"):              true,
		fn("f", "call Py_InitializeEx@PLT"):    true,
		fn("f", "call PyLong_FromLong@PLT"):    false,
		fn("main", "ret") + "Py_Main: ret\n":   false, // nobody can see that
		fn("f", "call Py_BytesMains@PLT\nret"): false,
		fn("xPy_Main", "ret"):                  false, // the name is in the string table
	} {
		if got := LoadsSwaps(open(t, asm(t, ".text\n"+text, "-shared"))); got != want {
			t.Errorf("%v of\n%s", got, text)
		}
	}
}
