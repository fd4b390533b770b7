"""The programs that node processes run. They obey; they never decide."""
