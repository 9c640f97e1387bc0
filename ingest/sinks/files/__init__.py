"""Tables of Parquet, JSON or CSV files with a log of windrow's own, for any reader."""
