// Garbage of several threads, faults that become exceptions, and traces of stacks.
using System;
using System.Collections.Generic;
using System.IO;
using System.Threading;

class Program {
	static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }
	static int Deep(int n) { return n == 0 ? 0 : 1 + Deep(n - 1); }

	static void Collect() {
		for (int k = 0; k < 30; k++) {
			var l = new List<string>();
			for (int j = 0; j < 500; j++)
				l.Add(j.ToString());
			GC.Collect();
			File.ReadAllText("/etc/passwd");
		}
	}

	static int Main() {
		Console.WriteLine(Fib(25));
		var threads = new List<Thread>();
		for (int i = 0; i < 4; i++)
			threads.Add(new Thread(Collect));
		threads.ForEach(t => t.Start());
		threads.ForEach(t => t.Join());
		try { object o = null; o.ToString(); } catch (NullReferenceException e) { Console.WriteLine(e.StackTrace.Length); }
		try { int z = 0; Console.WriteLine(1 / z); } catch (DivideByZeroException) { Console.WriteLine("divided"); }
		try { throw new Exception("x"); } catch (Exception e) { Console.WriteLine(e); }
		Console.WriteLine(Deep(10000));
		return 3;
	}
}
