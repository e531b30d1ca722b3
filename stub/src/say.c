/* Messages to people, on standard error. There is no libc to say what an error number
   means, and the program's own may not be called: the errors that the runtime can meet
   have their texts here. */
#include "configuration.h"
#include "filter.h"
#include "say.h"
#include "sys.h"
#include "text.h"

static const char *error_text(i64 err)
{
	static const struct { i32 err; char text[36]; } known[] = {
		{ 1, "operation not permitted" }, { 2, "no such file or directory" },
		{ 12, "out of memory" }, { 13, "permission denied" },
		{ 17, "file exists" }, { 20, "not a directory" },
		{ 23, "too many open files in system" }, { 24, "too many open files" },
		{ 27, "file too large" }, { 28, "no space left on device" },
		{ 30, "read-only file system" }, { 36, "name too long" },
		{ 39, "directory not empty" }, { 40, "too many symbolic links" },
		{ 122, "disk quota exceeded" },
	};
	for (u32 i = 0; i < lengthof(known); i++)
		if (known[i].err == -err)
			return known[i].text;
	return 0;
}

/* say writes one line to standard error, but not of a program that has forbidden itself system calls: what it wants there is its
   own business. err is a system call's result, 0: none. */
hidden void say(const char *a, const char *b, const char *c, i64 err)
{
	char line[320], num[32] = ": error ";
	const char *parts[] = { "fentry: ", a, b, c, 0, 0 };
	u64 n = 0;
	if (fentry_config.flags & FLAG_QUIET || load(&fentry_forbids))
		return;
	if (failed(err)) {
		parts[4] = error_text(err) ? ": " : num;
		parts[5] = error_text(err);
		decimal(num + 8, (u64)-err);
	}
	for (u32 i = 0; i < lengthof(parts); i++)
		for (const char *s = parts[i]; s && *s && n < sizeof line - 1; s++)
			line[n++] = *s;
	line[n++] = '\n';
	sys(SYS_write, 2, line, n, 0, 0, 0);
}
