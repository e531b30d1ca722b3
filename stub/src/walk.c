/* Walking a stack by unwind tables.

   Tables are those that the program's own unwinder uses, .eh_frame through its search table, of
   whatever is loaded when a stack is wanted: nothing has to be prepared for libraries that are loaded later, nor
   to be given up when they go. Interpreting an entry takes about a microsecond. So the row that was found is
   kept by address in a small table, which all threads share without a lock: a slot whose words do not
   belong together, because two threads have written it at once, is one that is empty. The eight bytes of code before
   the address are part of it, as another library can lie there later.

   Return addresses that are a thunk's are looked up in the shadow of their slot. Moved instructions are named by
   their function, since they lie in no file.

   A program that filters its system calls may end when one is made that it does not make itself: from then on walks go as
   far as what is known takes them, and tables of images of ours, which say when they go (life.c).

   Nothing is guessed: a walk ends where a row is not one of the usual ones (a distance from the stack
   pointer or the frame pointer), and says why. It reads nothing but the mappings that hold the stack, tables of
   images that hold its code, and that code. */
#include "cfi.h"
#include "life.h"
#include "machine.h"
#include "memory.h"
#include "process.h"
#include "sys.h"
#include "text.h"
#include "walk.h"


/* ---- what is loaded ---- */

enum { MOST_LOADED = 1000, PT_LOAD_ = 1, PT_NOTE_ = 4, PT_GNU_EH_FRAME_ = 0x6474e550, NT_GNU_BUILD_ID_ = 3 };

/* All that was ever found; those that are gone stay, with hi 0. */
static struct loaded *loaded;
static u32 nloaded, loading;

struct program_header { u32 type, flags; u64 offset, vaddr, paddr, filesz, memsz, align; };

/* find_id finds the build-id among notes. */
static void find_id(struct loaded *l, u64 at, u64 size)
{
	u32 note[3];
	for (u64 end = at + size; at + 16 <= end && read_own(note, at, sizeof note);) {
		u64 desc = at + sizeof note + ((note[0] + 3UL) & -4UL);
		if (note[2] == NT_GNU_BUILD_ID_ && note[0] == 4 && desc + note[1] <= end) {
			u32 n = note[1] < sizeof l->id ? note[1] : sizeof l->id;
			l->idlen = read_own(l->id, desc, n) ? n : 0;
			return;
		}
		at = desc + ((note[1] + 3UL) & -4UL);
	}
}

/* find_segments fills in what program headers say; 0: it is no image. Those of a static program can have the tracer's segments
   in memory, too, far away from it. They are in no file, so their offset is 0, as that of the first segment is. */
static int find_segments(struct loaded *l)
{
	struct { u8 ident[16]; unsigned short type, machine; u32 version; u64 entry, phoff, shoff; u32 flags;
		 unsigned short ehsize, phentsize, phnum; } h;
	struct program_header p;
	static const u8 elf64[] = { 0x7f, 'E', 'L', 'F', 2, 1 };
	u64 low = -1UL, high = 0;
	if (!read_own(&h, l->lo, sizeof h) || memcmp(h.ident, elf64, sizeof elf64) != 0 || h.phentsize != sizeof p)
		return 0;
	for (u32 pass = 0; pass < 2; pass++) {
		for (u32 i = 0; i < h.phnum; i++) {
			if (!read_own(&p, l->lo + h.phoff + i * sizeof p, sizeof p))
				return 0;
			if (pass == 0 && p.type == PT_LOAD_ && (p.offset || !high)) { /* not the tracer's */
				low = p.vaddr < low ? p.vaddr : low;
				high = p.vaddr + p.memsz > high ? p.vaddr + p.memsz : high;
			}
			if (pass == 1 && p.type == PT_GNU_EH_FRAME_ && p.memsz)
				l->header = (const u8 *)(p.vaddr + l->bias);
			if (pass == 1 && p.type == PT_NOTE_ && !l->idlen)
				find_id(l, p.vaddr + l->bias, p.memsz);
		}
		if (low >= high)
			return 0;
		l->bias = l->lo - (low & -page_size);
		l->hi = high + l->bias;
	}
	return !l->header || read_own(l->check, (u64)l->header, sizeof l->check);
}

/* still says whether an image is what it was. */
static int still(const struct loaded *l)
{
	u64 now[2];
	return !l->header || (read_own(now, (u64)l->header, sizeof now) && now[0] == l->check[0] && now[1] == l->check[1]);
}

/* is_nowhere says whether a mapping's path is none: it begins like that of memory, or ends like that of a file that has no
   name any more. */
static int is_nowhere(const char *path)
{
	static const char memory[] = "/memfd:", deleted[] = " (deleted)";
	u64 n = length(path);
	return memcmp(path, memory, sizeof memory - 1) == 0 ||
	       (n >= sizeof deleted && memcmp(path + n - (sizeof deleted - 1), deleted, sizeof deleted) == 0);
}

/* add_loaded adds the image that begins with a mapping, if one does. */
static void add_loaded(const struct mapping *m)
{
	if (m->offset || m->access[0] != 'r' || !m->path[0] || nloaded == MOST_LOADED)
		return;
	for (u32 i = 0; i < nloaded; i++)
		if (loaded[i].lo == m->lo && loaded[i].hi)
			return;
	struct loaded *l = &loaded[nloaded];
	memset(l, 0, sizeof *l);
	l->lo = m->lo;
	if (!find_segments(l))
		return;
	join(l->path, sizeof l->path, m->path, 0, 0);
	l->nowhere = (u32)is_nowhere(l->path);
	for (u32 i = 0; i < nloaded; i++) {
		if (!loaded[i].hi && loaded[i].lo == l->lo && memcmp(&loaded[i].bias, &l->bias, sizeof *l - offsetof(struct loaded, bias)) == 0) {
			store(&loaded[i].hi, l->hi); /* it is there again */
			return;
		}
	}
	store(&nloaded, nloaded + 1);
}

/* refresh looks at what is loaded now. Where another thread does, it has to do. */
static void refresh(void)
{
	struct mappings s;
	struct mapping m;
	if (check_filter() || swap(&loading, 1))
		return;
	if (!loaded)
		store(&loaded, (struct loaded *)map_private(MOST_LOADED * sizeof *loaded));
	for (u32 i = 0; loaded && i < nloaded; i++)
		if (loaded[i].hi && !still(&loaded[i]))
			store(&loaded[i].hi, 0);
	for (mappings_begin(&s); loaded && mappings_next(&s, &m);)
		add_loaded(&m);
	mappings_end(&s);
	store(&loading, 0);
}

/* loaded_at returns the image that holds an address, and its number; 0: none is known. */
hidden const struct loaded *loaded_at(u64 pc, u32 *index)
{
	struct loaded *all = load(&loaded);
	for (u32 i = all ? load(&nloaded) : 0; i-- > 0;) {
		if (pc - all[i].lo < load(&all[i].hi) - all[i].lo && load(&all[i].hi)) {
			*index = i;
			return &all[i];
		}
	}
	return 0;
}

/* mapped_at is loaded_at for an address whose entry is found without it, in an image of ours: one that has come since is
   looked for. */
hidden const struct loaded *mapped_at(u64 pc, u32 *index)
{
	static u32 known;
	u32 n = 0;
	const struct loaded *l = loaded_at(pc, index);
	for (struct image *m = l ? 0 : images_first(); m; m = m->next)
		n++;
	if (n == 0 || n == load(&known))
		return l;
	store(&known, n);
	refresh();
	return loaded_at(pc, index);
}

/* ---- entries ---- */

/* search finds the entry of an address by a search table, in the form that all linkers write. */
static int search(const u8 *header, u64 pc, struct fde *f)
{
	if (header[0] != 1 || header[1] != 0x1b || header[2] != 0x03 || header[3] != 0x3b)
		return 0;
	const i32 *table = search_table(header);
	u64 lo = 0, hi = *(const u32 *)(header + 8);
	while (lo < hi) {
		u64 mid = (lo + hi) / 2;
		if ((u64)header + (u64)(i64)table[2 * mid] <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo > 0 && cfi_fde(header + table[2 * lo - 1], 0, (const u8 *)-1UL, f) && pc - f->pc < f->size;
}

/* has_entry finds the entry of an address in an image of ours, whose table knows what was added to it. */
static int has_entry(const struct image *m, u64 pc, struct fde *f)
{
	return load(&m->stage) == IMAGE_HERE && m->unwind && pc - (u64)m->unwind + (1UL << 31) < 1UL << 32 && search(m->unwind, pc, f);
}

/* find_added finds the entry of an address in what was added to an image, and which that is; 0: in none. It makes no system
   call. */
hidden struct image *find_added(u64 pc, struct fde *f)
{
	struct image *m = images_first();
	while (m && !(m->stays && has_entry(m, pc, f)))
		m = m->next;
	return m;
}

/* find_entry finds the entry of an address: that of an image of ours, or of any other. */
static int find_entry(u64 pc, struct fde *f)
{
	u32 i;
	for (u32 again = 0; again < 2; again++) {
		const struct loaded *l = loaded_at(pc, &i);
		for (struct image *m = images_first(); m; m = m->next)
			if (has_entry(m, pc, f))
				return 1;
		if (l && still(l) && l->header)
			return search(l->header, pc, f);
		if (!again)
			refresh();
	}
	return 0;
}

/* code_around sets lo and hi to where the code of a function is by its entry. pc is in it. It returns 0 if it has none. */
hidden int code_around(u64 pc, u64 *lo, u64 *hi)
{
	struct fde f;
	images_use();
	int found = find_entry(pc, &f);
	images_used();
	*lo = f.pc;
	*hi = f.pc + f.size;
	return found;
}

/* ---- rows ---- */

static struct rule ending(u32 end) { return (struct rule){ .kind = ENDS, .end = (u8)end }; }

/* rule_of makes a rule of a row. */
static struct rule rule_of(const struct fde *f, const struct row *r)
{
	enum { MOST_NAMED = 15 };
	struct rule out;
	if (f->cie.signal)
		return (struct rule){ .kind = SIGNAL };
	if (r->ret.rule == UNDEFINED)
		return ending(FT_END_OUTERMOST);
	if (!has_return(f, r) || r->offset != (i32)r->offset)
		return ending(FT_END_NO_TABLE);
	if (r->reg == DWARF_SP)
		out = (struct rule){ .kind = FROM_SP, .offset = (i32)r->offset };
	else if (r->reg == DWARF_FP)
		out = (struct rule){ .kind = FROM_FP, .offset = (i32)r->offset };
	else if (r->reg == ~0U ? !by_expression(r->expression, &out) : r->reg > MOST_NAMED)
		return ending(FT_END_NO_TABLE);
	else if (r->reg != ~0U)
		return ending(FT_END_UNDEFINED | r->reg << 4);
	return set_places(&out, r) ? out : ending(FT_END_NO_TABLE);
}

enum { SLOTS = 4096 };
static struct slot { u64 key, code; union { struct rule rule; u64 word[2]; } u; } *slots;

static u64 mixed(const struct slot *s) { return s->code ^ s->u.word[0] ^ s->u.word[1] << 1; }

/* code_before is what identifies the code at an address. */
static u64 code_before(u64 pc)
{
	u64 w;
	__builtin_memcpy(&w, (const void *)(pc - 8), 8); /* one load, and no call */
	return w;
}

/* moved_code returns the id of the function whose first instructions have been moved to where pc is: its thunk goes on
   there, and no other function's is nearer; or whose thunk it is. 0: pc is not there. */
static u32 moved_code(u64 pc)
{
	enum { LONGEST = 256 };
	u64 best = LONGEST;
	u32 id = 0;
	for (struct image *m = images_first(); m; m = m->next) {
		if (DWARF_PC && load(&m->stage) == IMAGE_HERE && m->thunks && pc - m->thunks < m->size)
			return m->base + (u32)((pc - m->thunks) / m->thunk_size) + 1;
		for (u32 i = 0; load(&m->stage) == IMAGE_HERE && i < (m->thunks ? m->size / m->thunk_size : 0); i++) {
			u64 body = body_of((const u8 *)m->thunks + (u64)i * m->thunk_size);
			if (body && pc > body && pc - body < best) {
				best = pc - body;
				id = m->base + i + 1;
			}
		}
	}
	return id;
}

/* is_thunk says whether an address with an entry is in a thunk, but for the function's own instructions: on arm64 they can
   be in it, and it has an entry like the function's. */
static int is_thunk(u64 pc, const struct fde *f)
{
	for (struct image *m = images_first(); m; m = m->next) {
		if (m->thunks && pc - m->thunks < m->size)
			return !DWARF_PC || f->cie.column != DWARF_PC || (pc - m->thunks) % m->thunk_size < THUNK_BYPASS;
		if (pc - m->backs < m->backs_size)
			return 1;
	}
	return 0;
}

/* look_for_rule looks at the tables of images, for a frame at pc: at is in its instruction. */
static struct rule look_for_rule(u64 pc, u64 at)
{
	struct fde f;
	struct row r;
	struct rule rule;
	u32 i;
	if (!load(&nloaded))
		refresh();
	if (is_signal_return(pc))
		return (struct rule){ .kind = SIGNAL };
	if (!find_entry(at, &f)) {
		rule = ending(check_filter() ? FT_END_FILTERED : FT_END_NO_TABLE);
		rule.nowhere = 1;
		return rule;
	}
	rule = !is_thunk(at, &f) && cfi_row(&f, at, &r) ? rule_of(&f, &r) : ending(FT_END_NO_TABLE);
	if (!loaded_at(at, &i))
		rule.moved = moved_code(at);
	return rule;
}

/* find_rule finds the rule for an address by its entry. */
static struct rule find_rule(u64 pc, u64 at)
{
	images_use();
	struct rule rule = look_for_rule(pc, at);
	images_used();
	return rule;
}

/* keep_rule finds the rule for a frame, at an address in its instruction, and keeps it. What was not found is not looked for
   again until something is loaded. */
static __attribute__((noinline)) void keep_rule(struct slot *kept, u64 pc, u64 at, struct rule *out)
{
	struct slot s;
	memset(&s, 0, sizeof s);
	*out = s.u.rule = find_rule(pc, at);
	s.code = s.u.rule.nowhere ? load(&nloaded) : code_before(pc);
	s.key = at ^ mixed(&s);
	*kept = s;
}

/* rule_at gets the rule for a frame. */
static inline void rule_at(struct slot *all, u64 pc, int exact, struct rule *out)
{
	u64 at = exact ? pc : pc - 1;
	struct slot *kept = &all[(at ^ at >> 12) % SLOTS], s = *kept;
	*out = s.u.rule;
	if ((s.key ^ mixed(&s)) != at || s.code != (out->nowhere ? load(&nloaded) : code_before(pc)))
		keep_rule(kept, pc, at, out);
}

/* all_slots is the table of rules; 0: there is no memory for it. */
static struct slot *all_slots(void)
{
	struct slot *all = load(&slots);
	if (all)
		return all;
	all = map_private(SLOTS * sizeof *all);
	if (all && !cas(&slots, (struct slot *)0, all)) {
		sys(SYS_munmap, all, SLOTS * sizeof *all, 0, 0, 0, 0);
		all = load(&slots);
	}
	return all;
}

/* walk_leave unmaps what is known. Nobody walks a stack any more. */
hidden void walk_leave(void)
{
	if (slots)
		sys(SYS_munmap, slots, SLOTS * sizeof *slots, 0, 0, 0, 0);
	if (loaded)
		sys(SYS_munmap, loaded, MOST_LOADED * sizeof *loaded, 0, 0, 0, 0);
}

/* ---- the walk ---- */

enum { MORE = 0 }; /* no end yet */

/* range_end is where the mapping ends that holds a stack pointer; 0: it is not known. Stacks grow downwards, below what
   was seen of them. */
static u64 range_end(struct ranges *known, u64 sp)
{
	for (u32 i = 0; i < lengthof(known->range); i++)
		if (sp >= known->range[i].lo && sp < known->range[i].hi)
			return known->range[i].hi;
	struct mappings s;
	struct mapping m;
	u64 hi = 0;
	if (check_filter())
		return 0;
	for (mappings_begin(&s); !hi && mappings_next(&s, &m);) {
		if (sp < m.lo || sp >= m.hi || m.access[0] != 'r')
			continue;
		u32 i = known->next++ % lengthof(known->range);
		known->range[i].lo = m.lo;
		hi = known->range[i].hi = m.hi;
	}
	mappings_end(&s);
	return hi;
}

/* up goes on to the caller's frame, by a rule. It returns why it cannot, MORE if it has. */
static inline u32 up(struct ranges *known, struct registers *r, struct rule rule)
{
	struct function f;
	u64 cfa, hi, pc;
	if (rule.kind == ENDS)
		return rule.end;
	hi = range_end(known, r->sp);
	if (!hi)
		return check_filter() ? FT_END_FILTERED : FT_END_BAD_CFA;
	switch (rule.kind) {
	case SIGNAL:
		return interrupted(r, hi) ? MORE : FT_END_BAD_CFA;
	case FROM_SP:
		cfa = r->sp + (u64)(i64)rule.offset;
		break;
	case FROM_FP:
		cfa = r->fp + (u64)(i64)rule.offset;
		break;
	default:
		cfa = other_cfa(r, rule, hi);
	}
	if (!can_be_cfa(r, cfa) || cfa > hi)
		return FT_END_BAD_CFA;
	if (!return_address(r, rule, cfa, hi, &pc))
		return FT_END_NO_TABLE;
	if (image_returns_to(pc, &f))
		pc = without_signature(*shadow_ret(cfa - SLOT_BELOW));
	u64 at = rule.fp == SAVED ? cfa + (u64)frame_pointer_at(rule) : r->fp;
	if (rule.fp == SAVED || rule.fp == INDIRECT) {
		if (at < lowest(r) || at % 8 || at + 8 > hi)
			return FT_END_BAD_CFA;
		r->fp = *(u64 *)at;
	}
	r->pc = pc;
	r->sp = cfa;
	r->exact = 0;
	return r->pc ? MORE : FT_END_OUTERMOST;
}

/* walk_up goes on to the caller's frame. It returns 0 where it cannot. */
hidden int walk_up(struct ranges *known, struct registers *r)
{
	struct slot *all = all_slots();
	struct rule rule;
	if (!all)
		return 0;
	rule_at(all, r->pc, r->exact, &rule);
	return up(known, r, rule) == MORE;
}

/* walk follows a stack from the frame with registers r, innermost first, for at most so many frames, and says why it
   ends. It returns how many there are. */
hidden u32 walk(struct ranges *known, struct registers r, u64 *pcs, u32 most, u32 *end)
{
	u32 n = 0, why = MORE;
	struct function f;
	struct slot *all = all_slots();
	r.pc = without_signature(r.pc);
	if (image_returns_to(r.pc, &f))
		r.pc = without_signature(*shadow_ret(r.sp - SLOT_BELOW));
	while (why == MORE && r.pc) {
		if (n == most) {
			why = FT_END_DEPTH;
			break;
		}
		struct rule rule = ending(FT_END_NO_TABLE);
		if (all)
			rule_at(all, r.pc, r.exact, &rule);
		pcs[n++] = rule.moved ? MOVED_CODE | rule.moved : r.exact || rule.kind == SIGNAL ? FT_EXACT_PC | r.pc : r.pc;
		why = up(known, &r, rule);
	}
	*end = why;
	return n;
}
