package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestTextRelocations: what the dynamic linker changes in code is not moved, in programs, libraries and patched ones.
func TestTextRelocations(t *testing.T) {
	needFentry(t)
	testtool.Need(t, "gcc", "objdump")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"get.S": ".globl get\n.type get,@function\nget: .cfi_startproc\nmovabs $value,%rax\nret\n.cfi_endproc\n.size get,.-get\n" +
			".data\nvalue: .quad 42\n.section .note.GNU-stack,\"\",@progbits\n",
		"main.c": "#include <stdio.h>\nlong *get(void);\n__attribute__((noinline)) long twice(void) { return 2 * *get(); }\n" +
			"int main(void) { printf(\"%ld\\n\", twice()); return 0; }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	testtool.Output(t, "gcc", "-O1", "-pie", "-fPIE", "-Wl,-z,notext", "-o", at("program"), at("main.c"), at("get.S"))
	testtool.Output(t, "gcc", "-shared", "-Wl,-z,notext", "-o", at("libget.so"), at("get.S"))
	testtool.Output(t, "gcc", "-O1", "-o", at("user"), at("main.c"), at("libget.so"), "-Wl,-rpath,"+dir)
	if headers := testtool.Output(t, "objdump", "-p", at("program")); !strings.Contains(string(headers), "TEXTREL") {
		t.Fatalf("no relocations of code\n%s", headers)
	}
	run(t, command{argv: []string{fentry, "patch", "-o", at("patched"), at("program")}}).mustSucceed(t)
	for _, argv := range [][]string{
		{fentry, "record", "-q", "-o", at("data"), at("program")},
		{fentry, "record", "-q", "-o", at("data"), "--no-ptrace", at("program")},
		{fentry, "record", "-q", "-o", at("data"), "-L", "libget", at("user")},
		{at("patched")},
	} {
		if r := run(t, command{dir: dir, argv: argv}).mustSucceed(t); r.stdout != "84\n" {
			t.Errorf("%q says %q, %s", argv, r.stdout, r.stderr)
		}
	}
	if r := run(t, command{argv: []string{fentry, "list", "-l", at("program")}}).mustSucceed(t); !strings.Contains(r.stdout, "text-relocation") {
		t.Errorf("no reason in\n%s", r.stdout)
	}
}
