/* The images of this process whose functions are traced. */
#ifndef FENTRY_IMAGE_H
#define FENTRY_IMAGE_H
#include "config.h"
#include "layout.h"

struct control;
struct image;
struct sysregs;
struct callregs;

/* What a fast path has reserved: the address of the first slot, 0 for none, and the low half
   of the sequence number there. */
struct reserved { u64 slot, number; };

/* What the fast paths of an image look at: words.S. */
struct words {
	struct control **blocks;
	u64 thunks, thunks_size;
	u64 id_scale, id_enter, id_exit;
	u32 depth, id_base;
	u64 (*enter)(u64 slot, u32 id, struct image *m, u64 ret, u64 fp);
	u64 (*exit)(u64 slot, u32 id, struct image *m);
	struct control *(*record)(u32 id, struct image *m, u64 fp);
	void (*syscall)(struct sysregs *r, int exit);
	struct reserved (*settle)(u64 seen, u64 n);
	u64 word; /* filled in by the image itself */
	int (*act)(u64 slot, u32 id, struct image *m, struct callregs *r);
	u64 (*act_exit)(u64 slot, u32 id, struct image *m, struct callregs *r);
	u32 tables, syscalls;
	const u8 *roots;
	u64 threshold;
	struct image *self;
	u32 plain, unused;
	void (*place)(u64 slot, u32 id, struct image *m, u64 ret);
};

at(words, blocks, W_BLOCKS);
at(words, thunks, W_THUNKS);
at(words, thunks_size, W_THUNKS_SIZE);
at(words, id_scale, W_ID_SCALE);
at(words, id_enter, W_ID_ENTER);
at(words, id_exit, W_ID_EXIT);
at(words, id_scale, W_ID_LOCAL);
at(words, roots, W_ROOTS);
at(words, threshold, W_THRESHOLD);
at(words, self, W_SELF);
at(words, depth, W_DEPTH);
at(words, id_base, W_ID_BASE);
at(words, enter, W_ENTER);
at(words, exit, W_EXIT);
at(words, record, W_RECORD);
at(words, syscall, W_SYSCALL);
at(words, settle, W_SETTLE);
at(words, word, W_WORD);
at(words, act, W_ACT);
at(words, act_exit, W_ACT_EXIT);
at(words, tables, W_TABLES);
at(words, place, W_PLACE);
at(words, syscalls, W_SYSCALLS);
at(words, plain, W_PLAIN);
_Static_assert(sizeof(struct words) == W_SIZE, "words");

/* How far an image is. Its memory is only certain to be there while it is HERE, and else for the thread that
   loads it, or runs its functions: see life.c. */
enum { IMAGE_COMES = STAGE_COMES, IMAGE_HERE = STAGE_HERE, IMAGE_GOES = STAGE_GOES };

/* Memory that a recorder has mapped; size 0: none. */
struct memory { u64 at, size; };

/* An image. The structure is the home's. */
struct image {
	struct image *next; /* of all there ever were, newest first */
	u64 id;
	u32 sites, base;    /* ids in the trace are local ids, 1 to sites, plus base */
	u64 bias;           /* load address minus link address */
	u64 loaded;         /* counter when it registered */
	struct words *words;
	u64 thunks, size;   /* address of the first thunk, bytes of all; 0: there are none */
	u8 *switches;       /* by local id, from 1 */
	const u8 *roots;    /* bitmap of graph roots by local id, 0: every function is one */
	const u8 *table;    /* of its functions' addresses, by local id, as package sitetable has it; 0: none */
	const u8 *without;  /* of functions that are left out with all inside them, 0: none */
	const u8 *unwind;   /* search table of unwind information, 0: that of the program headers */
	const struct acting *acting; /* what is done at calls of its functions: one of actings; 0: nothing */
	struct memory changed; /* a recorder's table of actions */
	u64 at;             /* address of its image_info: values of some actions are distances from there */
	u64 code, code_size; /* the runtime that came with it, size 0: it is not known where that ends */
	u64 detours;        /* address of the table of its runtime's routines, see Detours in internal/spec; 0: there is none */
	u8 *changed_roots;  /* a recorder's, in memory of its own; 0: none */
	u32 stage;          /* IMAGE_... */
	u32 thunk_size;     /* bytes of one */
	u64 backs;          /* address of the back of the first thunk, or of the thunk itself where they have none apart */
	u64 backs_size;     /* bytes of all; 0: bodies do not return to them */
	u64 unloaded;       /* counter when it went */
	u8 *kept;           /* its switches when it went, for when it is loaded again */
	u32 told_gone;      /* readers have been told that it went */
	u32 tables;         /* where its tables are in blocks */
	u8 *next_roots;     /* those of a change that is being made; 0: none */
	u32 stays;          /* its memory is there for as long as the runtime is */
	struct acting actings[2];
	/* What the last change took the place of, where a thread may look that came in before. */
	struct memory old;
	u8 *old_roots;
};

at(image, next, STATE_O_NEXT);
at(image, id, STATE_O_ID);
at(image, sites, STATE_O_SITES);
at(image, loaded, STATE_O_LOADED);
at(image, words, STATE_O_WORDS);
at(image, thunks, STATE_O_THUNKS);
at(image, switches, STATE_O_SWITCHES);
at(image, acting, STATE_O_ACTING);
at(image, at, STATE_O_AT);
at(image, code, STATE_O_CODE);
at(image, code_size, STATE_O_CODE_SIZE);
at(image, detours, STATE_O_DETOURS);
at(image, stage, STATE_O_STAGE);
at(image, thunk_size, STATE_O_THUNK_SIZE);

at(image, switches, I_SWITCHES);

/* A traced function. */
struct function {
	struct image *image;
	u32 id; /* local */
};

static inline const struct action *acting_table(const struct acting *a) { return (const struct action *)a->actions; }

/* acting_index is behind the table of actions. */
static inline const u32 *acting_index(const struct acting *a) { return (const u32 *)(acting_table(a) + a->count); }

static inline u32 trace_id(struct function f) { return f.image->base + f.id; }

extern hidden const struct image_info fentry_image;
extern hidden struct words fentry_words;
extern hidden struct image fentry_own;
extern hidden u32 fentry_armed, fentry_silent, fentry_switched;

hidden struct image *image_add(const struct image_info *info, struct words *words, u32 base, int *same);
hidden void image_begin(struct image *m);
hidden void image_hold(struct image *m);
hidden int image_copy_roots(struct image *m, const u8 *bitmap);
hidden void image_drop_roots(struct image *m);
hidden void image_take_roots(struct image *m);
hidden void image_actions(struct image *m, const struct changed_actions *to);
hidden struct image **images_list(void);
hidden void image_stage(struct image *m, u32 stage);
hidden void images_bases(u32 *base, u32 *enter);
hidden struct image *images_first(void);
hidden int image_returns_to(u64 ret, struct function *f);
hidden u64 image_site(struct function f);
hidden int image_function(u64 addr, struct function *f);
hidden void images_plain(int plain);
hidden int images_arm(int on);
hidden int images_armed(void);
hidden int images_paused(void);
hidden int images_pause(int pause);
hidden int images_share_base(struct control **t);
hidden void images_switch_off(u32 id);
hidden void images_leave(void);

#endif
