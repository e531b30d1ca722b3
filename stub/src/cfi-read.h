/* Unwind information of code: .eh_frame, as far as frames are described by a distance from the stack
   pointer or the frame pointer, which nearly all are. Expressions are passed on as they are.

   Linked into programs it says where functions for arm64 have their frame records (classic-frames.c); in those for
   x86-64 that are traced as they are, it is what stacks are walked by (cfi.c). Each includes this once. */
#include "cfi.h"
#include "machine.h"

/* Readers of bytes; at the end they stay there and give zeros. */
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

/* cfi_entry returns the contents of an entry of .eh_frame behind the length; nothing at the end. */
hidden struct bytes cfi_entry(const u8 *p, const u8 *end)
{
	struct bytes b = { p, end };
	u64 n = fixed(&b, 4);
	if (n == 0 || n >= 0xfffffff0 || n > (u64)(end - b.p))
		b.end = b.p;
	else
		b.end = b.p + n;
	return b;
}

/* cfi_cie returns 0 for what is none, or one of a kind that is not known. */
hidden int cfi_cie(const u8 *p, const u8 *end, struct cie *c)
{
	struct bytes b = cfi_entry(p, end);
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
				c->signal = 1;
				break;
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

/* cfi_fde returns 0 for what is no FDE, or one of a kind that is not known. */
hidden int cfi_fde(const u8 *p, const u8 *start, const u8 *end, struct fde *f)
{
	struct bytes b = cfi_entry(p, end);
	const u8 *at = b.p;
	u64 back = fixed(&b, 4);
	if (back == 0 || back > (u64)(at - start) || !cfi_cie(at - back, end, &f->cie))
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

/* set notes what a register's place is in the caller's frame, if it is one that counts. */
static void set(struct row *r, u64 reg, struct place p)
{
	if (reg == DWARF_FP)
		r->fp = p;
	if (reg == DWARF_RET) {
		r->ret = p;
		r->ret_set = 1;
	}
}

static struct place saved(i64 at) { return (struct place){ SAVED, at }; }
static struct place other(u32 rule) { return (struct place){ rule, 0 }; }
static struct place initially(const struct row *initial, u64 reg)
{
	return reg == DWARF_FP ? initial->fp : initial->ret;
}

/* expression reads an expression: where it is, and how long. */
static struct bytes expression(struct bytes *b)
{
	u64 n = uleb(b);
	struct bytes e = { b->p, b->p };
	if (n > (u64)(b->end - b->p))
		b->p = b->end;
	else
		e.end = b->p += n;
	return e;
}

/* in_memory is the place by an expression for where a register is: compilers have one for what the frame pointer itself
   points to, and tracing those that begin with the address that is looked at (arch/arm64, unwind.go). */
static struct place in_memory(struct bytes e)
{
	enum { BREG_FP = 0x70 + DWARF_FP, DUP = 0x12, CONSTU = 0x10, PLUS_UCONST = 0x23, MINUS = 0x1c, DEREF = 0x06 };
	if (e.end - e.p == 2 && e.p[0] == BREG_FP && e.p[1] == 0)
		return other(INDIRECT);
	u32 dup = (u32)fixed(&e, 1), op = (u32)fixed(&e, 1);
	i64 n = (i64)uleb(&e);
	if (dup != DUP || (op != PLUS_UCONST && (op != CONSTU || fixed(&e, 1) != MINUS)) || fixed(&e, 1) != DUP || fixed(&e, 1) != DEREF)
		return other(OTHER);
	return saved(op == CONSTU ? -n : n);
}

/* as_value is the place by an expression for what a register is: tracing has one for a return address that is in its
   register. */
static struct place as_value(struct bytes e)
{
	enum { BREG_RET = 0x70 + DWARF_RET, DUP = 0x12 };
	return other(DWARF_RET < 32 && e.end - e.p > 3 && e.p[0] == BREG_RET && e.p[1] == 0 && e.p[2] == DUP ? SAME : OTHER);
}

/* by_column is the place by the expression for the column of the pc, which tracing adds on arm64 (arch/arm64, column.go):
   the return address is in its register all the time, or saved, but where the CFA is odd or the stack pointer. */
static struct place by_column(struct bytes e)
{
	enum { BREG = 0x70, SIZE = 14, DUP = 0x12, CONSTU = 0x10, MINUS = 0x1c };
	static const u8 begins[SIZE] = { DUP, BREG + 31, 0, 0x29, 0x14, 0x31, 0x1a, 0x21, 0x16, 0x09, 0xfe, 0x1a, 0x16, 0x28 };
	if (e.end - e.p > 2 && e.p[0] == BREG + 30 && e.p[1] == 0)
		return other(SAME);
	if (e.end - e.p < SIZE || memcmp(e.p, begins, SIZE) != 0)
		return other(OTHER);
	e.p += SIZE;
	fixed(&e, 2);
	u32 dup = (u32)fixed(&e, 1), op = (u32)fixed(&e, 1);
	i64 n = (i64)uleb(&e);
	return dup == DUP && op == CONSTU && fixed(&e, 1) == MINUS ? saved(-n) : other(OTHER);
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
			set(r, op & 0x3f, saved((i64)uleb(&b) * c->data));
		} else if (op >> 6 == 3) {
			set(r, op & 0x3f, initially(initial, op & 0x3f));
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
			set(r, reg, saved((i64)uleb(&b) * c->data));
			break;
		case 0x11: /* offset_extended_sf */
			reg = uleb(&b);
			set(r, reg, saved(sleb(&b) * c->data));
			break;
		case 0x06: /* restore_extended */
			reg = uleb(&b);
			set(r, reg, initially(initial, reg));
			break;
		case 0x07: /* undefined */
			set(r, uleb(&b), other(UNDEFINED));
			break;
		case 0x08: /* same_value */
			set(r, uleb(&b), other(SAME));
			break;
		case 0x09: /* register */
			set(r, uleb(&b), other(OTHER));
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
			r->expression = expression(&b);
			break;
		case 0x10: /* expression */
			reg = uleb(&b);
			set(r, reg, in_memory(expression(&b)));
			break;
		case 0x16: /* val_expression */
			reg = uleb(&b);
			if (DWARF_PC && reg == DWARF_PC)
				r->column = by_column(expression(&b));
			else
				set(r, reg, as_value(expression(&b)));
			break;
		case 0x14: /* val_offset */
			set(r, uleb(&b), other(OTHER));
			uleb(&b);
			break;
		case 0x15: /* val_offset_sf */
			set(r, uleb(&b), other(OTHER));
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

/* cfi_row finds the row of an entry for an instruction. */
hidden int cfi_row(const struct fde *f, u64 pc, struct row *r)
{
	struct row none;
	memset(r, 0, sizeof *r);
	memset(&none, 0, sizeof none);
	if (!run(f->cie.code, &f->cie, 0, 0, r, &none))
		return 0;
	r->ret_set = 0;
	none = *r;
	if (!run(f->code, &f->cie, f->pc, pc, r, &none))
		return 0;
	if (DWARF_PC && f->cie.column == DWARF_PC) {
		int in_register = r->offset & 1 || (r->reg == DWARF_SP && r->offset == 0);
		r->ret = r->column.rule == SAVED && in_register ? other(SAME) : r->column;
		r->offset &= ~1L;
	}
	return 1;
}
