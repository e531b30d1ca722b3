// Exceptions through frames with something to be cleaned up, in the main thread and in two others.
import core.thread;
import std.stdio;

class Refused : Exception
{
	this(string m) { super(m); }
}

int caught, cleaned; // of each thread

pragma(inline, false) extern (C) int check(int i)
{
	if (i % 3 == 0)
		throw new Refused("refused");
	return i;
}

pragma(inline, false) extern (C) int through(int i, int depth)
{
	scope (exit)
		cleaned++;
	if (depth == 0)
		return check(i);
	return through(i, depth - 1) + 1;
}

void work()
{
	int sum;
	foreach (i; 1 .. 61)
	{
		try
			sum += through(i, i % 4);
		catch (Refused)
			caught++;
	}
	assert(sum == 1260);
	synchronized
		writeln(caught, " ", cleaned);
}

void main()
{
	auto threads = [new Thread(&work).start(), new Thread(&work).start()];
	work();
	foreach (t; threads)
		t.join();
	throw new Refused("at the end");
}
