/* Which calls of a function are recorded: those of which an argument is as wanted.

   A condition is looked at before a call leaves anything in the trace, so one that fails costs no event. What
   was found out when the image was patched (package arguments) is where the argument is, by which pointers a member of it is
   reached, how many bits of that word count, and what to compare them with. What cannot be reached fails. Text is compared as far as a buffer goes that fits on any stack. What is not text,
   because it cannot be read, is no text that somebody wants, and unlike any. */
#include "capture.h"
#include "condition.h"
#include "memory.h"
#include "process.h"
#include "sys.h"

enum { LONGEST = 128 }; /* bytes of text that are compared */

/* number_holds compares a word. Numbers of all 64 bits without a sign are in the order of those with one when their
   top bits are flipped. */
static int number_holds(u64 w, const struct condition *q)
{
	u32 shift = 64 - q->size;
	u64 flip = q->size == 64 && !q->is_signed ? 1UL << 63 : 0;
	w >>= q->skip;
	i64 a = (i64)((q->is_signed ? (u64)((i64)(w << shift) >> shift) : w << shift >> shift) ^ flip), b = (i64)(q->value ^ flip);
	switch (q->compare) {
	case COMPARE_EQUAL:
		return a == b;
	case COMPARE_UNEQUAL:
		return a != b;
	case COMPARE_LESS:
		return a < b;
	case COMPARE_AT_MOST:
		return a <= b;
	case COMPARE_MORE:
		return a > b;
	}
	return a >= b;
}

/* covers says whether a pattern of m bytes covers n bytes of text; without any, * and ? are what they are. */
static int covers(const u8 *p, u64 m, const u8 *s, u64 n, int any)
{
	u64 i = 0, k = 0, star = m, back = 0;
	while (i < n) {
		if (any && k < m && p[k] == '*') {
			star = k++;
			back = i;
		} else if (k < m && (p[k] == s[i] || (any && p[k] == '?'))) {
			i++;
			k++;
		} else if (star < m) {
			k = star + 1;
			i = ++back;
		} else {
			return 0;
		}
	}
	while (any && k < m && p[k] == '*')
		k++;
	return k == m;
}

/* fetch_any reads memory that can be anything. */
static u64 fetch_any(struct control *c, void *to, u64 at, u64 n)
{
	if (at && !literal(at, n))
		check_filter();
	return at ? fetch(c, to, at, n) : 0;
}

static int text_holds(struct control *c, u64 at, const struct condition *q)
{
	u8 b[LONGEST];
	u64 n = 0, got = fetch_any(c, b, at, q->size < LONGEST ? q->size : LONGEST);
	while (n < got && b[n])
		n++;
	int any = q->compare == COMPARE_LIKE || q->compare == COMPARE_UNLIKE;
	int wanted = q->compare == COMPARE_LIKE || q->compare == COMPARE_TEXT;
	const u8 *text = (const u8 *)((const u64 *)(q + 1) + q->hops);
	return (got && covers(text, q->length, b, n, any)) == wanted;
}

/* reaches follows a condition's hops from a word, and returns whether they lead somewhere. */
static int reaches(struct control *c, u64 *w, const struct condition *q)
{
	const u64 *hop = (const u64 *)(q + 1), *end = hop + q->hops;
	for (; hop < end; hop++) {
		u64 at = *w + (u32)*hop, n = *hop >> 32;
		if (!*w)
			return 0;
		*w = n ? 0 : at;
		if (n && fetch_any(c, w, at, n) != n)
			return 0;
	}
	return 1;
}

static int holds(struct control *c, u64 slot, const struct callregs *r, const struct condition *q)
{
	struct capture_op op = { q->code, q->from, 0 };
	u64 w[2];
	capture_word(c, &op, 0, slot, r, w);
	if (!reaches(c, w, q))
		return q->compare == COMPARE_NO_TEXT || q->compare == COMPARE_UNLIKE;
	return q->compare >= COMPARE_TEXT ? text_holds(c, w[0], q) : number_holds(w[0], q);
}

/* conditions_hold says whether a call that begins is as all of a function's n actions want it. */
hidden int conditions_hold(struct control *c, struct function f, u64 slot, const struct callregs *r,
			   const struct action *a, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (a[i].kind == ACT_IF && !holds(c, slot, r, (const struct condition *)(f.image->at + a[i].value)))
			return 0;
	return 1;
}
