# A run that spends its time in the interpreter: calls, hashes, strings, regular expressions, sorting.
use strict;

sub fib { my $n = shift; return $n < 2 ? $n : fib($n - 1) + fib($n - 2) }

my $total = 0;
for (1 .. $ARGV[0]) {
	my %h;
	for my $i (1 .. 30000) {
		$h{$i % 97} .= chr(65 + $i % 26);
		$total += length $h{$i % 97};
	}
	$total += () = join(' ', values %h) =~ /B[A-Z]*?Z/g;
	my @s = sort { $a <=> $b } map { $_ * 7919 % 10007 } 1 .. 10000;
	$total += $s[5] + fib(16);
}
print "$total\n";
