/* Where functions compiled with -pg have their frame. _mcount is called behind the
   prologue, and return_to_handler finds the function's own stack pointer gone: all
   that ties the two together is the stack pointer the function was called with, S.
   How far S is from the frame record that x29 points to depends on the function, and
   the compiler has written it down in .eh_frame. So has it whether the return address
   in the record is signed.

   What was found is kept in a table by the call's address, which the fast path reads. */
#include "classic.h"
#include "classic-frames.h"
#include "sys.h"

/* The newest of the calls with the same hash: a word that is read and written whole. */
hidden u64 fentry_classic_frames[FRAMES];

/* FDEs by the first address they are for: what .eh_frame_hdr has, or what sort has made
   of a program without. Words of the latter are distances from the image's start:
   high half the code's, low half the FDE's. */
static const u8 *header;
static u64 *sorted;
static u64 entries;

/* A reader of bytes; at the end it stays there and gives zeros. */
struct bytes { const u8 *p, *end; };

static u64 fixed(struct bytes *b, u32 n)
{
	u64 v = 0;
	if ((u64)(b->end - b->p) < n) {
		b->p = b->end;
		return 0;
	}
	for (u32 i = 0; i < n; i++)
		v |= (u64)*b->p++ << (8 * i);
	return v;
}

/* leb reads a LEB128 number: how many bits it has is added to *bits, and its last byte,
   which tells the sign, is *last. */
static u64 leb(struct bytes *b, u32 *bits, u64 *last)
{
	u64 v = 0, c;
	do {
		c = fixed(b, 1);
		if (*bits < 64)
			v |= (c & 0x7f) << *bits;
		*bits += 7;
	} while (c & 0x80);
	*last = c;
	return v;
}

static u64 uleb(struct bytes *b)
{
	u32 bits = 0;
	u64 last;
	return leb(b, &bits, &last);
}

static i64 sleb(struct bytes *b)
{
	u32 bits = 0;
	u64 last, v = leb(b, &bits, &last);
	if (bits < 64 && last & 0x40)
		v |= -1UL << bits;
	return (i64)v;
}

/* encoded reads a pointer in the forms that compilers use for code: absolute, or
   relative to itself; of 4 or 8 bytes. */
static u64 encoded(struct bytes *b, u32 enc, int relative)
{
	u64 at = (u64)b->p, v;
	switch (enc & 0xf) {
	case 0xb: /* sdata4 */
		v = (u64)(i64)(i32)fixed(b, 4);
		break;
	case 0x3: /* udata4 */
		v = fixed(b, 4);
		break;
	default: /* absptr, udata8, sdata8 */
		v = fixed(b, 8);
	}
	return relative && (enc & 0x70) == 0x10 ? v + at : v;
}

static int known(u32 enc)
{
	u32 form = enc & 0xf;
	return (form == 0 || form == 3 || form == 4 || form == 0xb || form == 0xc) &&
	       ((enc & 0xf0) == 0 || (enc & 0xf0) == 0x10);
}

/* An entry of .eh_frame: contents behind the length, which is 0 at the end. */
static struct bytes entry(const u8 *p, const u8 *end)
{
	struct bytes b = { p, end };
	u64 n = fixed(&b, 4);
	if (n == 0 || n >= 0xfffffff0 || n > (u64)(end - b.p))
		b.end = b.p;
	else
		b.end = b.p + n;
	return b;
}

struct cie {
	struct bytes code;
	u64 align, column;
	i64 data;
	u32 enc;  /* of addresses in FDEs */
	int key_b, augmented;
};

/* parse_cie returns 0 for what is none, or one of a kind that is not known. */
static int parse_cie(const u8 *p, const u8 *end, struct cie *c)
{
	struct bytes b = entry(p, end);
	char aug[8] = "";
	memset(c, 0, sizeof *c);
	if (b.end - b.p < 9 || fixed(&b, 4) != 0)
		return 0;
	u64 version = fixed(&b, 1), ch;
	for (u32 i = 0; (ch = fixed(&b, 1)) != 0; i++) {
		if (i == sizeof aug - 1)
			return 0;
		aug[i] = (char)ch;
	}
	if ((version != 1 && version != 3) || (aug[0] && aug[0] != 'z'))
		return 0;
	c->align = uleb(&b);
	c->data = sleb(&b);
	c->column = version == 1 ? fixed(&b, 1) : uleb(&b);
	if (c->align == 0)
		return 0;
	c->augmented = aug[0] == 'z';
	if (c->augmented) {
		u64 n = uleb(&b);
		if (n > (u64)(b.end - b.p))
			return 0;
		struct bytes a = { b.p, b.p + n };
		b.p += n;
		for (u32 i = 1; aug[i]; i++) {
			switch (aug[i]) {
			case 'R':
				c->enc = (u32)fixed(&a, 1);
				break;
			case 'L':
				fixed(&a, 1);
				break;
			case 'P': {
				u32 e = (u32)fixed(&a, 1);
				if (!known(e & 0x7f))
					return 0;
				encoded(&a, e, 0);
				break;
			}
			case 'B':
				c->key_b = 1;
				break;
			case 'S':
			case 'G':
				break;
			default:
				return 0;
			}
		}
	}
	c->code = b;
	return known(c->enc);
}

struct fde {
	struct cie cie;
	struct bytes code;
	u64 pc, size;
};

static int parse_fde(const u8 *p, const u8 *start, const u8 *end, struct fde *f)
{
	struct bytes b = entry(p, end);
	const u8 *at = b.p;
	u64 back = fixed(&b, 4);
	if (back == 0 || back > (u64)(at - start) || !parse_cie(at - back, end, &f->cie))
		return 0;
	f->pc = encoded(&b, f->cie.enc, 1);
	f->size = encoded(&b, f->cie.enc, 0);
	if (f->cie.augmented) {
		u64 n = uleb(&b);
		if (n > (u64)(b.end - b.p))
			return 0;
		b.p += n;
	}
	f->code = b;
	return f->size != 0;
}

/* ---- the row of an instruction ---- */

struct row {
	u32 reg; /* of the CFA; ~0: an expression */
	i64 offset;
	i64 fp, lr; /* where they are, from the CFA; 0: not there */
	int is_signed;
};

static void set(struct row *r, u64 reg, i64 at)
{
	if (reg == 29)
		r->fp = at;
	if (reg == 30)
		r->lr = at;
}

/* run executes call frame instructions (DWARF 4, 6.4.2; DWARF for the Arm 64-bit
   Architecture, 4.4) up to the row for pc. It returns 0 at one it does not know. */
static int run(struct bytes b, const struct cie *c, u64 at, u64 pc, struct row *r, const struct row *initial)
{
	struct row stack[4];
	u32 depth = 0;
	while (b.p < b.end) {
		u32 op = (u32)fixed(&b, 1);
		u64 reg, move = ~0UL;
		if (op >> 6 == 1) {
			move = op & 0x3f;
		} else if (op >> 6 == 2) {
			set(r, op & 0x3f, (i64)uleb(&b) * c->data);
		} else if (op >> 6 == 3) {
			set(r, op & 0x3f, (op & 0x3f) == 29 ? initial->fp : initial->lr);
		} else switch (op) {
		case 0x00: /* nop */
			break;
		case 0x01: /* set_loc */
			at = encoded(&b, c->enc, 1);
			if (at > pc)
				return 1;
			break;
		case 0x02: /* advance_loc1, 2, 4 */
			move = fixed(&b, 1);
			break;
		case 0x03:
			move = fixed(&b, 2);
			break;
		case 0x04:
			move = fixed(&b, 4);
			break;
		case 0x05: /* offset_extended */
			reg = uleb(&b);
			set(r, reg, (i64)uleb(&b) * c->data);
			break;
		case 0x11: /* offset_extended_sf */
			reg = uleb(&b);
			set(r, reg, sleb(&b) * c->data);
			break;
		case 0x06: /* restore_extended */
			reg = uleb(&b);
			set(r, reg, reg == 29 ? initial->fp : initial->lr);
			break;
		case 0x07: /* undefined, same_value */
		case 0x08:
			set(r, uleb(&b), 0);
			break;
		case 0x09: /* register */
			set(r, uleb(&b), 0);
			uleb(&b);
			break;
		case 0x0a: /* remember_state */
			if (depth == lengthof(stack))
				return 0;
			stack[depth++] = *r;
			break;
		case 0x0b: /* restore_state */
			if (depth == 0)
				return 0;
			*r = stack[--depth];
			break;
		case 0x0c: /* def_cfa */
			r->reg = (u32)uleb(&b);
			r->offset = (i64)uleb(&b);
			break;
		case 0x12: /* def_cfa_sf */
			r->reg = (u32)uleb(&b);
			r->offset = sleb(&b) * c->data;
			break;
		case 0x0d: /* def_cfa_register */
			r->reg = (u32)uleb(&b);
			break;
		case 0x0e: /* def_cfa_offset */
			r->offset = (i64)uleb(&b);
			break;
		case 0x13: /* def_cfa_offset_sf */
			r->offset = sleb(&b) * c->data;
			break;
		case 0x0f: /* def_cfa_expression */
			r->reg = ~0U;
			b.p += uleb(&b);
			break;
		case 0x10: /* expression, val_expression */
		case 0x16:
			set(r, uleb(&b), 0);
			b.p += uleb(&b);
			break;
		case 0x14: /* val_offset */
			set(r, uleb(&b), 0);
			uleb(&b);
			break;
		case 0x15: /* val_offset_sf */
			set(r, uleb(&b), 0);
			sleb(&b);
			break;
		case 0x2d: /* AARCH64_negate_ra_state */
			r->is_signed = !r->is_signed;
			break;
		case 0x2e: /* GNU_args_size */
			uleb(&b);
			break;
		default:
			return 0;
		}
		if (move != ~0UL) {
			at += move * c->align;
			if (at > pc)
				return 1;
		}
	}
	return 1;
}

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
	return lo > 0 && parse_fde(entry_fde(lo - 1), image_start, (const u8 *)-1UL, f) && pc - f->pc < f->size;
}

/* row_at finds out how a call's function has its frame. */
static int row_at(u64 pc, struct row *r, int *key_b)
{
	struct fde f;
	struct row none = { 0, 0, 0, 0, 0 };
	*r = none;
	if (!find_fde(pc, &f) || f.cie.column != 30 || !run(f.cie.code, &f.cie, 0, 0, r, &none))
		return 0;
	none = *r;
	*key_b = f.cie.key_b;
	return run(f.code, &f.cie, f.pc, pc, r, &none);
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
	if (row_at(pc, &r, &key_b) && (r.reg == 31 || r.reg == 29) && r.lr == r.fp + 8 && r.fp <= -16) {
		u64 cfa = (r.reg == 31 ? sp : fp) + (u64)r.offset, size = (u64)-r.fp;
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
		struct bytes b = entry(p, end);
		struct fde f;
		if (b.end - b.p < 4)
			break;
		if (*(const u32 *)b.p != 0 && parse_fde(p, start, end, &f) &&
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
		if (((const u32 *)p)[1] != 0 || !parse_cie(p, end, &c))
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
