/* What readers are told of images. Each is described in a chunk of key=value strings
   before any of its events: the home's, with what the process runs, by the first thread
   when tracing starts, others when they join. Whenever an image comes, another chunk says
   which ones there are, and which ids they have. That chunk is complete each time, so that
   readers need no other, and one that a kill cuts off takes nothing along but the newest
   change. */
#include "announce.h"
#include "chunk.h"
#include "configuration.h"
#include "image.h"
#include "process.h"
#include "request.h"
#include "say.h"
#include "source.h"
#include "sys.h"
#include "text.h"

/* Text that is being written, as far as there is room. */
struct text { u8 *p, *end; };

static void text(struct text *o, const char *s, u64 max)
{
	for (u64 i = 0; i < max && s[i] && o->p < o->end; i++)
		*o->p++ = (u8)s[i];
}
static void number(struct text *o, u64 v, u32 base)
{
	char b[24];
	u32 i = sizeof b;
	do
		b[--i] = "0123456789abcdef"[v % base];
	while (v /= base);
	text(o, b + i, sizeof b - i);
}
static void end(struct text *o)
{
	if (o->p < o->end)
		*o->p++ = 0;
}

/* from_file appends up to max bytes of a file, NULs changed to sep. */
static void from_file(struct text *o, const char *path, u8 sep)
{
	i64 fd = open(path, O_CLOEXEC_, 0);
	if (failed(fd))
		return;
	u8 *from = o->p;
	for (;;) {
		i64 n = sys(SYS_read, fd, o->p, o->end - o->p, 0, 0, 0);
		if (failed(n) || n == 0)
			break;
		o->p += n;
	}
	close(fd);
	for (; from < o->p; from++)
		if (*from == 0)
			*from = sep;
}

#define PATIENCE 100000000UL /* ns */

/* take gets a chunk for an announcement. Without it whole tasks make no sense to readers:
   so it is waited for even if events are not. */
static int take(struct control *c, struct chunk *k, u32 least)
{
	u64 from = clock_ns(CLOCK_MONOTONIC_), waited = 0;
	for (;;) {
		u32 freed = source.kind == POOL ? load(HEADER(u32, FT_H_FREED)) : 0;
		if (take_chunk(c, k, least))
			return 1;
		if (source.kind != POOL || waited >= PATIENCE)
			return 0;
		futex_wait(HEADER(u32, FT_H_FREED), freed, PATIENCE - waited);
		waited = clock_ns(CLOCK_MONOTONIC_) - from;
	}
}

/* pair writes a key with a value of at most max bytes. */
static void pair(struct text *o, const char *key, const char *value, u64 max)
{
	text(o, key, 16);
	text(o, value, max);
	end(o);
}

/* image_keys writes what is known of an image, the program's own or another one. */
static void image_keys(struct text *o, const struct image_info *info, u64 bias)
{
	pair(o, "path=", info->path, sizeof info->path);
	text(o, "build-id=", 16);
	for (u32 i = 0; i < info->idlen && i < sizeof info->build_id; i++) {
		number(o, info->build_id[i] >> 4, 16);
		number(o, info->build_id[i] & 15, 16);
	}
	end(o);
	pair(o, "machine=", MACHINE, 16);
	text(o, "bias=0x", 8);
	number(o, bias, 16);
	end(o);
	text(o, "nsites=", 8);
	number(o, info->sites, 10);
	end(o);
	const char *tracer = MODE_NAMES;
	for (u32 i = 0; i < fentry_config.mode && *tracer; i++)
		tracer += length(tracer) + 1;
	pair(o, "mode=", tracer, 16);
	if (clockless())
		pair(o, "clock=", "none", 16);
	if (info->goroutine)
		pair(o, "stacks=", "goroutines", 16);
	if (info->park) {
		text(o, "park=", 8);
		number(o, info->park, 10);
		end(o);
	}
	if (info->ready) {
		text(o, "ready=", 8);
		number(o, info->ready, 10);
		end(o);
	}
	if (info->plain)
		pair(o, "plain=", "1", 16);
	if (info->library == 1) { /* else whoever has made the copy needs no path, and finding it takes long */
		text(o, "file=", 8);
		o->p += mapped_file((u64)info, (char *)o->p, (u64)(o->end - o->p));
		end(o);
	}
	text(o, "exe=", 8);
	i64 n = readlink("/proc/self/exe", o->p, o->end - o->p);
	if (!failed(n))
		o->p += n;
	end(o);
}

/* program_keys writes what the process runs. */
static void program_keys(struct text *o)
{
	text(o, "ppid=", 8);
	number(o, (u64)sys(SYS_getppid, 0, 0, 0, 0, 0, 0), 10);
	end(o);
#ifdef FENTRY_CLASSIC
	pair(o, "ids=", "offset/4", 16);
#endif
	o->end += 504;
	text(o, "cmdline=", 8);
	from_file(o, "/proc/self/cmdline", 0x1f);
	end(o);
}

/* announce_image describes an image in a chunk of its own: this one with what the process
   runs, or one that has joined it. */
hidden void announce_image(struct control *c, const struct image_info *info, struct image *m)
{
	struct chunk k = { 0 };
	if (!take(c, &k, source.chunk_size) && !take_chunk(c, &k, 0))
		return;
	/* Arguments may be cut off, but take no room from what comes before them. */
	struct text o = { (u8 *)k.base + FT_CHUNK_HEADER, (u8 *)k.base + k.size - 512 };
	image_keys(&o, info, m->bias);
	if (info == &fentry_image) {
		program_keys(&o);
	} else {
		text(&o, "home=", 8);
		number(&o, fentry_image.id, 16);
		end(&o);
	}
	sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	*(u32 *)(k.base + FT_C_SIZE) = (u32)(((u64)o.p - k.base + 7) & -8UL);
	chunk_header(c, k.base, FT_KIND_IMAGE, info->id, 0);
	hand_over(c, &k);
}

/* announce_images writes which images the process has, or had. It returns 0 when there is
   nowhere to write it to: nobody could tell then what the ids of a new image mean. */
hidden int announce_images(struct control *c)
{
	struct chunk k = { 0 };
	u32 size = FT_CHUNK_HEADER;
	for (struct image *m = images_first(); m; m = m->next)
		size += FT_MAP_ENTRY;
	if (size > source.chunk_size)
		size = source.chunk_size;
	if (!take(c, &k, size))
		return 0;
	u64 at = k.base + FT_CHUNK_HEADER;
	for (struct image *m = images_first(); m && at + FT_MAP_ENTRY <= k.base + k.size; m = m->next) {
		*(u32 *)(at + FT_M_FIRST) = m->base + 1;
		*(u32 *)(at + FT_M_COUNT) = m->sites;
		*(u64 *)(at + FT_M_IMAGE) = m->id;
		*(u64 *)(at + FT_M_BIAS) = m->bias;
		*(u64 *)(at + FT_M_LOADED) = m->loaded;
		*(u64 *)(at + FT_M_UNLOADED) = load(&m->stage) == IMAGE_GOES ? m->unloaded : 0;
		m->told_gone = load(&m->stage) == IMAGE_GOES;
		at += FT_MAP_ENTRY;
	}
	*(u32 *)(k.base + FT_C_SIZE) = (u32)(at - k.base);
	chunk_header(c, k.base, FT_KIND_MAP, fentry_image.id, 0);
	hand_over(c, &k);
	return 1;
}

/* announce_joined writes what announce has kept back, when an image has joined this one of which something is
   recorded. */
hidden void announce_joined(struct control *c)
{
	static u32 joined;
	if (!(fentry_config.flags & FLAG_FOLLOW) || swap(&joined, 1))
		return;
	sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	announce_image(c, &fentry_image, &fentry_own);
	record(c, counter(), FT_REC_START, 0, 0);
}

/* announce writes what readers need to know of this image: nothing, if this runtime is only
   there for what the program executes. It returns 0 when there is nowhere to write
   to. */
hidden int announce(struct control *c)
{
	if (fentry_config.flags & FLAG_FOLLOW)
		return 1;
	sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	/* A recorder whose pool the configuration names has made the plan itself. The file of
	   another program may be gone before it looks for it. */
	if (!fentry_config.session[0])
		request(FT_ASK_NEW_IMAGE, fentry_image.id);
	announce_image(c, &fentry_image, &fentry_own);
	if (!announce_images(c) && source.kind != CLOSED) {
		say("not traced: the recorder's buffer is full at the program's start", 0, 0, 0);
		return 0;
	}
	record(c, counter(), FT_REC_START, 0, 0);
	return source.kind != CLOSED;
}
