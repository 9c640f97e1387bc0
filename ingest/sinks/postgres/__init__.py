"""Tables in PostgreSQL, told from the bottom up.

names      names of tables, windrow's own among them (pure)
url        what of a server's URL is its place, and what is secret (pure)
columns    which types a table holds, and how two schemas differ (pure)
json_text  values with an inside as JSON, and back (pure)
encode     Arrow batches as rows of a binary COPY (pure)
server     connections, transactions, what the driver's errors stand for
lock       the table's lock, and runs that hold it and were stopped
catalog    what windrow keeps of its tables: whose they are, receipts, ranges, notes
stage      one split's rows in a file that COPY takes, and such files brought in
merge      staged changes merged into a table with a primary key
unfit      servers, users and tables of an owner's own that can hold no windows
prepare    making, owning and comparing a table
read       rows back into Arrow
store      the table as the commit loop has it, of rows and of dead letters
"""
