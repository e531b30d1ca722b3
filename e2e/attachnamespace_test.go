package e2e

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestAttachSecond: the second process of a PID namespace, and its children, are none of the kernel's there.
func TestAttachSecond(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("processes are attached to on x86-64")
	}
	needNamespaces(t)
	needFentry(t)
	data := filepath.Join(t.TempDir(), "data")
	program := testtool.Compile(t, "program", `#include <unistd.h>
__attribute__((noipa)) int work(int n) { return n + 1; }
int main(void)
{
	fork();
	for (int i = 0;; i = work(i))
		usleep(1000);
}
`, "-O2", "-fpatchable-function-entry=5")
	const script = `"$1" & second=$!
until third=$(cat /proc/$second/task/$second/children) && [ -n "$third" ]; do sleep .02; done
[ $second = 2 ] || exit 3
"$0" record -q -o "$2" -p $second,${third% } --for 500ms`
	run(t, command{argv: append(namespaces[0], "sh", "-c", script, fentry, program, data)}).mustSucceed(t)
	tr := decodeTrace(t, data)
	if len(tr.pids) != 2 {
		t.Errorf("%d processes are recorded, want 2", len(tr.pids))
	}
}
