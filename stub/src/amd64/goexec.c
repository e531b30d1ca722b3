/* What Go's own code is about to execute, and filters that it is about to install: goroutine.S comes here with the
   registers of a system call. */
#include "configuration.h"
#include "machine.h"
#include "source.h"

hidden void fentry_executes(u64 nr, u64 first, u64 second, u64 flags, u64 third);

hidden void fentry_go_executes(const struct sysregs *r)
{
	if (fentry_config.flags & FLAG_EXECS)
		fentry_executes(r->ax, r->di, r->si, r->r8, r->dx);
}
