"""json_schema: completions that are one JSON document of a given schema."""
