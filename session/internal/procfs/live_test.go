//go:build linux

package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// endsFirst is a program whose first thread ends when a byte comes, and whose second one ends at the end of the input. It says ready
// when both are there.
const endsFirst = `
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *second(void *p)
{
	char c;
	pthread_join(*(pthread_t *)p, 0);
	read(0, &c, 1);
	exit(7);
}
int main(void)
{
	static pthread_t first, t;
	char c;
	first = pthread_self();
	pthread_create(&t, 0, second, &first);
	write(1, "ready\n", 6);
	read(0, &c, 1);
	pthread_exit(0);
}`

// What is asked of a thread that gives its memory up meanwhile is asked of another one.
func TestInLive(t *testing.T) {
	cmd := exec.Command(testtool.Compile(t, "endsfirst", endsFirst, "-pthread"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "ready\n" {
		t.Fatalf("the program said %q, %v", said, err)
	}
	pid := cmd.Process.Pid
	if dir := Dir(pid); dir != fmt.Sprintf("/proc/%d", pid) {
		t.Errorf("the directory of a process with its first thread is %s", dir)
	}
	var dirs []string
	err = InLive(pid, func(dir string) error {
		dirs = append(dirs, dir)
		if len(dirs) == 1 {
			in.Write([]byte{0})
			for hasMemory(dir) {
				time.Sleep(time.Millisecond)
			}
		}
		maps, err := os.ReadFile(dir + "/maps")
		if err == nil && len(maps) == 0 {
			err = errors.New("no memory")
		}
		return err
	})
	if first := fmt.Sprintf("/proc/%d/task/%d", pid, pid); err != nil || len(dirs) != 2 || dirs[0] != first || dirs[1] == first {
		t.Errorf("asked of %q: %v", dirs, err)
	}
	if dir := Dir(pid); len(dirs) > 1 && dir != dirs[1] {
		t.Errorf("the directory of a process without its first thread is %s, not %s", dir, dirs[1])
	}
	bad := errors.New("bad")
	if err := InLive(pid, func(string) error { return bad }); err != bad {
		t.Errorf("an error that is not of the thread's end becomes %v", err)
	}
	in.Close()
	cmd.Wait()
	if err := InLive(pid, func(string) error { return bad }); err != ErrEnded {
		t.Errorf("a process that has ended: %v", err)
	}
}
