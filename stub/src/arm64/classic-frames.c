/* Where functions compiled with -pg have their frame. _mcount is called behind the
   prologue, and return_to_handler finds the function's own stack pointer gone: all
   that ties the two together is the stack pointer the function was called with, S.
   How far S is from the frame record that x29 points to depends on the function, and
   the compiler has written it down in .eh_frame. So has it whether the return address
   in the record is signed.

   What was found is kept in a table by the call's address, which the fast path reads. */
#include "classic.h"
#include "classic-frames.h"
#include "cfi-read.h"
#include "sys.h"

/* The newest of the calls with the same hash: a word that is read and written whole. */
hidden u64 fentry_classic_frames[FRAMES];

/* FDEs by the first address they are for: what .eh_frame_hdr has, or what sort has made
   of a program without. Words of the latter are distances from the image's start:
   high half the code's, low half the FDE's. */
static const u8 *header;
static u64 *sorted;
static u64 entries;

/* ---- finding an FDE ---- */

static u64 entry_pc(u64 i)
{
	if (header)
		return (u64)header + (u64)(i64)((const i32 *)(header + 12))[2 * i];
	return (u64)image_start + (sorted[i] >> 32);
}

static const u8 *entry_fde(u64 i)
{
	if (header)
		return header + ((const i32 *)(header + 12))[2 * i + 1];
	return image_start + (u32)sorted[i];
}

/* find_fde finds the FDE of an instruction. Lengths bound what is read of it. */
static int find_fde(u64 pc, struct fde *f)
{
	u64 lo = 0, hi = entries;
	while (lo < hi) {
		u64 mid = (lo + hi) / 2;
		if (entry_pc(mid) <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo > 0 && cfi_fde(entry_fde(lo - 1), image_start, (const u8 *)-1UL, f) && pc - f->pc < f->size;
}

/* row_at finds out how a call's function has its frame. */
static int row_at(u64 pc, struct row *r, int *key_b)
{
	struct fde f;
	if (!find_fde(pc, &f) || f.cie.column != DWARF_RET)
		return 0;
	*key_b = f.cie.key_b;
	return cfi_row(&f, pc, r);
}

/* fentry_classic_frame returns a word of the table for the call at pc, made with
   stack pointer sp and frame pointer fp. */
hidden u64 fentry_classic_frame(u64 pc, u64 sp, u64 fp)
{
	u64 key = (pc - (u64)image_start) / 4, *at = &fentry_classic_frames[key / 4 & (FRAMES - 1)], w = load(at);
	if (w >> FRAME_KEY == key)
		return w;
	struct row r;
	int key_b = 0;
	w = key << FRAME_KEY;
	if (row_at(pc, &r, &key_b) && (r.reg == DWARF_SP || r.reg == DWARF_FP) && r.ret.rule == SAVED && r.fp.rule == SAVED &&
	    r.ret.at == r.fp.at + 8 && r.fp.at <= -16) {
		u64 cfa = (r.reg == DWARF_SP ? sp : fp) + (u64)r.offset, size = (u64)-r.fp.at;
		if (cfa - size == fp && cfa % 16 == 0 && size / 8 <= FRAME_SIZE)
			w |= size / 8 | (r.is_signed ? key_b ? FRAME_B : FRAME_A : FRAME_PLAIN);
	}
	store(at, w);
	return w;
}

/* ---- the start ---- */

static void sift(u64 *a, u64 i, u64 n)
{
	u64 v = a[i], k;
	for (; (k = 2 * i + 1) < n; i = k) {
		k += k + 1 < n && a[k] < a[k + 1];
		if (a[k] <= v)
			break;
		a[i] = a[k];
	}
	a[i] = v;
}

static void sort(u64 *a, u64 n)
{
	for (u64 i = n / 2; i-- > 0;)
		sift(a, i, n);
	while (n > 1) {
		u64 v = a[--n];
		a[n] = a[0];
		a[0] = v;
		sift(a, 0, n);
	}
}

/* walk goes through .eh_frame from start, and fills a if that is not 0. It returns how
   many FDEs of code in the image there are, 0 unless own is among it. */
static u64 walk(const u8 *start, const u8 *end, u64 own, u64 *a)
{
	u64 n = 0;
	int found = 0;
	for (const u8 *p = start; end - p >= 4;) {
		struct bytes b = cfi_entry(p, end);
		struct fde f;
		if (b.end - b.p < 4)
			break;
		if (*(const u32 *)b.p != 0 && cfi_fde(p, start, end, &f) &&
		    f.pc - (u64)image_start < (u64)(text_end - image_start)) {
			if (a)
				a[n] = (f.pc - (u64)image_start) << 32 | (u32)(p - image_start);
			n++;
			found |= own - f.pc < f.size;
		}
		p = b.end;
	}
	return found ? n : 0;
}

/* index makes the table that a program linked by "gcc -static" does not have. Its
   .eh_frame begins with a CIE: the first from which a walk comes by own. */
static int index_segment(const u8 *p, const u8 *end, u64 own)
{
	struct cie c;
	for (; end - p >= 16; p += 4) {
		if (((const u32 *)p)[1] != 0 || !cfi_cie(p, end, &c))
			continue;
		u64 n = walk(p, end, own, 0);
		if (n == 0)
			continue;
		u64 *a = map_private(n * sizeof *a);
		if (!a)
			return 0;
		walk(p, end, own, a);
		sort(a, n);
		sorted = a;
		entries = n;
		return 1;
	}
	return 0;
}

hidden void fentry_classic_find_frames(void)
{
	const u8 *e = image_start, *ph = e + *(const u64 *)(e + 32);
	u32 n = *(const unsigned short *)(e + 56);
	u64 bias = 0;
	for (u32 i = 0; i < n; i++) {
		const u8 *p = ph + i * 56;
		if (*(const u32 *)p == 1 /* PT_LOAD */ && *(const u64 *)(p + 8) == 0)
			bias = (u64)e - *(const u64 *)(p + 16);
	}
	for (u32 i = 0; i < n; i++) {
		const u8 *p = ph + i * 56, *h = (const u8 *)(bias + *(const u64 *)(p + 16));
		if (*(const u32 *)p == 0x6474e550 /* PT_GNU_EH_FRAME */ &&
		    h[0] == 1 && h[1] == 0x1b && h[2] == 0x03 && h[3] == 0x3b) {
			header = h;
			entries = *(const u32 *)(h + 8);
			return;
		}
	}
	for (u32 i = 0; i < n; i++) {
		const u8 *p = ph + i * 56, *s = (const u8 *)(bias + *(const u64 *)(p + 16));
		if (*(const u32 *)p == 1 /* PT_LOAD */ && !(*(const u32 *)(p + 4) & 2 /* PF_W */) &&
		    index_segment((const u8 *)(((u64)s + 3) & -4UL), s + *(const u64 *)(p + 32), (u64)ftrace_stub))
			return;
	}
}
