/* This process and others, as the kernel tells of them. */
#ifndef FENTRY_PROCESS_H
#define FENTRY_PROCESS_H
#include "types.h"

/* A process, this one or an ancestor. */
struct process {
	u32 pid, parent;
	u64 start; /* when it began, in clock ticks since the machine did */
	char state; /* R: it runs, Z: it has ended, ... */
};

/* A line of /proc/self/maps. */
struct mapping {
	u64 lo, hi, offset;
	const char *access, *path; /* "r-xp ...", and up to the line's end */
};

/* Reading them. */
struct mappings { char *room; u64 have, at; i64 fd; };

#define ANY_TIME (~(u64)0)

extern hidden u64 page_size;

hidden int read_process(u32 pid, struct process *p);
hidden int process_alive(u32 pid, u64 start);
hidden int thread_alive(u32 pid, u32 tid);
hidden u64 start_time(void);
hidden int own_proc(void);
hidden u64 pid_namespace(void);
hidden int alone(void);
hidden char **environment(void);
hidden void mappings_begin(struct mappings *s);
hidden int mappings_next(struct mappings *s, struct mapping *m);
hidden void mappings_end(struct mappings *s);
hidden u64 mapped_file(u64 addr, char *path, u64 room);
hidden const char *variable(char **env, const char *name);
hidden int privileged(u64 *auxv);
hidden int literal(u64 at, u64 n);

#endif
