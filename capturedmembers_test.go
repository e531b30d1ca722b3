//go:build linux

package fentry_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestArgumentMembers: members of what arguments and results point to, named by debug information or by their distance.
func TestArgumentMembers(t *testing.T) {
	const source = `
#include <stdlib.h>
#include <sys/mman.h>
enum kind { SMALL, LARGE };
struct header { short version; enum kind kind; char tag[8]; const char *name; };
struct request {
	struct { int inner; union { long number; double real; }; };
	struct header h, *next;
	const char **argv;
	unsigned first : 3;
	int bits : 5;
	char far[70000];
	int last;
};
struct pair { long id; const char *text; };
struct two { float x, y; };
#define N __attribute__((noinline))
#define SEEN(p) __asm__ volatile ("" :: "r"(p) : "memory")
N int f_request(int n, struct request *r) { SEEN(r); return n + (r != 0); }
N int f_pair(struct pair p) { SEEN(p.text); return p.id; }
N float f_two(struct two v) { SEEN(&v); return v.y; }
N int f_large(struct header h) { SEEN(&h); return h.version; }
N struct request *f_result(struct request *r) { SEEN(r); return r; }
int main(int argc, char **argv)
{
	const char *words[] = { "zero", "one", 0 };
	struct header second = { 2, LARGE, "second", "two" };
	struct request *r = calloc(1, sizeof *r);
	r->inner = -7, r->number = 1L << 40, r->last = 99, r->first = 5, r->bits = -3;
	r->h = (struct header){ 1, SMALL, "first", "one" };
	r->next = &second, r->argv = words;
	SEEN(r);
	SEEN(words);
	f_request(1, r);
	r->next = (struct header *)16, r->argv = 0;
	SEEN(r);
	f_request(2, r);
	f_request(3, 0);
	f_request(4, (struct request *)0x8000000000000000);
	f_pair((struct pair){ 5, "pair" });
	f_two((struct two){ 1.5f, 2.5f });
	f_large(second);
	f_result(r);
	char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(p + 4096, 4096);
	f_request(6, (struct request *)(p + 4096 - 4)); /* inner is there, number is not */
	return 0;
}
`
	specs := func(texts ...string) (out []arguments.Spec) {
		for _, s := range texts {
			spec, err := arguments.ParseSpec(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, spec)
		}
		return out
	}
	args := specs("f_request@n,r->inner,r->number/x,r->h.version,r->h.kind,r->h.tag,r->h.name,r->next->name,r->next->tag,"+
		"r->argv[1],r->last,arg2->0/i32,r->first,r->bits", "f_pair@p.text,p.id", "f_two@v.y", "f_large@h.kind,h.name")
	results := specs("f_result@retval->h.name")
	want := []string{
		`f_request(1, -7, 0x10000000000, 1, SMALL, "first", "one", "two", "second", "one", 99, -7, 5, -3)`,
		`f_request(2, -7, 0x10000000000, 1, SMALL, "first", "one", <0xffffffffffffffff>, <0x18>, NULL, 99, -7, 5, -3)`,
		`f_request(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`,
		`f_request(4, <0x8000000000000000>, `,
		`f_pair("pair", 5)`,
		`f_two(2.5)`,
		`f_large(LARGE, "two")`,
		`f_result() = "one"`,
		`f_request(6, 0, <0x`,
	}
	conditions := map[string]string{ // the first arguments of the calls that are recorded
		"f_request@n,r->inner<0":                 "1 2",
		"f_request@n,r->number == 0x10000000000": "1 2",
		"f_request@n,r->number != 1":             "1 2",
		"f_request@n,r->h.kind==LARGE":           "",
		"f_request@n,r->next->kind==LARGE":       "1",
		"f_request@n,r->next!=NULL":              "1 2",
		"f_request@n,r->h.name==one":             "1 2",
		"f_request@n,r->h.tag~f?rst":             "1 2",
		"f_request@n,r->h.tag!=first":            "3 4 6",
		"f_request@n,r->next->name~t*":           "1",
		"f_request@n,r->argv[1]==one":            "1",
		"f_request@n,r->last>98,r->last<=99":     "1 2",
		"f_request@n,r->bits<-2":                 "1 2",
		"f_request@n,r->bits<-3":                 "",
		"f_request@n,r->first=5":                 "1 2",
		"f_request@n,arg2->0/i32>=0":             "6",
		"f_pair@p.id,p.id>4":                     "5",
		"f_pair@p.id,p.text==pair":               "5",
		"f_pair@p.id,p.text!=pair":               "",
		"f_large@h.version,h.kind==LARGE":        "2",
		"f_large@h.version,h.name==three":        "",
	}
	for _, b := range []struct {
		name string
		cc   []string
		arch string
	}{
		{"gcc", []string{"gcc", "-O1", "-pg", "-mfentry"}, "amd64"},
		{"clang", []string{"clang", "-O2", "-pg", "-mfentry"}, "amd64"},
		{"arm64", []string{"aarch64-linux-gnu-gcc", "-O2", "-fpatchable-function-entry=2"}, "arm64"},
	} {
		t.Run(b.name, func(t *testing.T) {
			testtool.Need(t, b.cc[0])
			if b.arch != runtime.GOARCH {
				testtool.Need(t, map[string]string{"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}[b.arch])
			}
			program := compileSource(t, source, "c", slices.Concat(b.cc, []string{"-g", "-w"}))
			got := recordSpecs(t, program, args, results)
			if len(got) != len(want) {
				t.Fatalf("%d calls:\n%s", len(got), strings.Join(got, "\n"))
			}
			for i := range want {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("got  %s\nwant %s", got[i], want[i])
				}
			}
			for cond, want := range conditions {
				function, _, _ := strings.Cut(cond, "@")
				var calls []string
				for _, call := range recordSpecs(t, program, specs(cond), nil) {
					call, _, _ = strings.Cut(strings.TrimPrefix(call, function+"("), ", ")
					calls = append(calls, strings.TrimSuffix(call, ")"))
				}
				if got := strings.Join(calls, " "); got != want {
					t.Errorf("%s: %q, want %q", cond, got, want)
				}
			}
		})
	}
}

// TestErrno: errno of calls that have failed, of dynamic and static programs and in a library, which only the program's way
// to it serves.
func TestErrno(t *testing.T) {
	const source = `
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#define N __attribute__((noinline))
N int f_int(int e) { errno = e; return e ? -1 : 7; }
N void *f_pointer(int e) { errno = e; return e ? 0 : (void *)16; }
N void f_nothing(int e) { errno = e; }
N unsigned char f_small(int e) { errno = e; return 255; }
static void *thread(void *a) { f_int(ENOSPC); return a; }
int main(void)
{
	pthread_t t;
	f_int(ENOENT); f_int(0); f_pointer(ENOMEM); f_pointer(0); f_nothing(EPERM); f_small(EAGAIN); f_int(4242);
	errno = EXDEV; /* this thread's stays as it is */
	if (pthread_create(&t, 0, thread, 0) || pthread_join(t, 0))
		return 1;
	return errno != EXDEV;
}
`
	want := []string{"f_int() = -1 ENOENT", "f_int() = 7", "f_pointer() = NULL ENOMEM", "f_pointer() = 0x10",
		"f_small() = 255 EAGAIN", "f_int() = -1 4242", "f_int() = -1 ENOSPC"}
	spec, err := arguments.ParseSpec("f_*@errno")
	if err != nil {
		t.Fatal(err)
	}
	amd64, arm64 := []string{"-O1", "-pg", "-mfentry"}, []string{"-O1", "-fpatchable-function-entry=2"}
	for _, b := range []struct {
		name string
		cc   []string
		arch string
	}{
		{"lazy", append([]string{"gcc", "-Wl,-z,lazy"}, amd64...), "amd64"},
		{"now", append([]string{"gcc", "-Wl,-z,now", "-fno-plt"}, amd64...), "amd64"},
		{"static", append([]string{"gcc", "-static"}, amd64...), "amd64"},
		{"musl", []string{"musl-gcc", "-O1", "-static", "-fpatchable-function-entry=5"}, "amd64"},
		{"arm64", append([]string{"aarch64-linux-gnu-gcc"}, arm64...), "arm64"},
		{"arm64-static", append([]string{"aarch64-linux-gnu-gcc", "-static"}, arm64...), "arm64"},
	} {
		t.Run(b.name, func(t *testing.T) {
			testtool.Need(t, b.cc[0])
			if b.arch != runtime.GOARCH {
				testtool.Need(t, map[string]string{"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}[b.arch])
			}
			program := compileSource(t, source, "c", slices.Concat(b.cc, []string{"-g", "-w", "-pthread"}))
			if got := recordSpecs(t, program, nil, []arguments.Spec{spec}); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestArgumentsRust: what Rust passes as C would, and text; of the rest nobody promises how it is passed.
func TestArgumentsRust(t *testing.T) {
	testtool.Need(t, "rustc", "gcc")
	const source = `
pub struct Point { x: i64, y: i64 }
#[derive(Clone, Copy)]
pub enum Colour { Red, Green }
#[inline(never)] pub fn f_str(s: &str, n: usize) -> usize { s.len() + n }
#[inline(never)] pub fn f_bytes(v: &[u8], more: &[i32], c: bool) -> u8 { if c { more[0] as u8 + v[0] } else { 0 } }
#[inline(never)] pub fn f_point(p: &Point, c: char) -> i64 { if c == 'y' { p.x } else { p.y } }
#[inline(never)] pub fn f_colour(c: Colour, f: f32, d: f64, i: i8) -> Colour { if f as f64 + d > 9.0 && i > 3 { Colour::Red } else { c } }
#[inline(never)] pub fn f_part(s: &'static str) -> &'static str { &s[1..] }
#[inline(never)] pub fn f_vec(v: Vec<i32>) -> i32 { v.iter().sum() }
fn main() {
	f_str("hello", 3);
	f_bytes(b"bytes", &[1, 2, 3], true);
	f_point(&Point { x: 1, y: 2 }, 'x');
	f_colour(Colour::Green, 1.5, -2.5, -3);
	f_colour(Colour::Red, 0.0, 0.0, 0);
	f_part("text");
	f_vec(vec![4, 5]);
}
`
	program := compileSource(t, source, "rs", []string{"rustc", "-g", "-A", "warnings"})
	spec := arguments.Spec{Pattern: "*::f_*"}
	item, err := arguments.ParseSpec("*::f_point@p->y,c")
	if err != nil {
		t.Fatal(err)
	}
	got := recordSpecs(t, program, []arguments.Spec{spec, item}, []arguments.Spec{spec})
	for i, want := range []string{`f_str("hello", 3) = 8`, `f_bytes("bytes", {data_ptr=0x`, `f_point(2, `,
		`f_colour(Green, 1.5, -2.5, -3) = Green`, `f_colour(Red, 0, 0, 0) = Red`, `f_part("text") = "ext"`, `f_vec() = 9`} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("want %s among\n%s", want, strings.Join(got, "\n"))
		}
	}
}
