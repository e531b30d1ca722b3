package record

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSwaps: functions that copy pieces of their stack are told by what they do behind that, and by nothing less.
func TestSwaps(t *testing.T) {
	testtool.Need(t, "gcc")
	for _, tt := range []struct {
		name, body string
		want       bool
	}{
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			img := asm(t, ".text\n"+fn("_start", "ud2")+fn("f", "mov $1,%eax\nret")+fn("g", "mov $1,%eax\n"+tt.body), "-static", "-no-pie")
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
	} {
		if got := LoadsSwaps(open(t, asm(t, ".text\n"+text, "-shared"))); got != want {
			t.Errorf("%v of\n%s", got, text)
		}
	}
}
