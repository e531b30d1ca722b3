/* What linkers are told of every assembly file: layout.h brings it. */
#ifndef FENTRY_NOTE_H
#define FENTRY_NOTE_H

#ifdef FENTRY_CLASSIC
	/* Programs are linked with it: all that can be branched to has a landing pad. */
	.pushsection .note.gnu.property, "a", %note
	.p2align 3
	.word	4, 16, 5		/* length of the name, of the contents, NT_GNU_PROPERTY_TYPE_0 */
	.asciz	"GNU"
	.word	0xc0000000, 4, 1, 0	/* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI */
	.popsection
#endif

#endif
