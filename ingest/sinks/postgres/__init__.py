"""Tables in PostgreSQL.

The modules, from the bottom up:

names      names of tables, and of windrow's own tables (pure)
url        a server's URL, its place and its secrets (pure)
columns    the types of columns, and how they evolve (pure)
server     connections, transactions, and errors of the driver
encode     Arrow batches as rows of a binary COPY, and rows as Arrow batches
catalog    windrow's own tables: owners, receipts, ranges, notes
stage      staged files, and their COPY into tables
merge      the merge of staged changes into a table with a primary key
create     creates, binds and compares a table
store      the table for the commit loop, with rows or with dead letters
"""
