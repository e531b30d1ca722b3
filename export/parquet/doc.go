// Package parquet adds a trace, a run, to a data set of many: tables as Parquet files that DuckDB, ClickHouse and Spark
// read, below one directory that any number of machines write to. docs/fleet.md has the tables and questions in SQL.
//
// A file of each table is TABLE/host=HOST/program=PROGRAM/run=RUN/RUN.parquet, so host, program and run are columns, too,
// for those who read the directories' names (Hive's layout). The run's number follows from its trace: nobody has to be
// asked for one, and who exports a trace again replaces its files. Files have other names until they are complete, and
// the table runs comes last: a run that is in it is whole.
//
// Numbers of functions, paths and tasks are those of one run.
package parquet
