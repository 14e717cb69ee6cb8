#!/usr/bin/env python3
"""check-schema.py SCHEMA < DOCUMENT: exit 0 when the JSON document is what the schema describes; 1 and the first
differences on stderr when it is not; 77 where python3-jsonschema is not installed."""
import json
import sys

try:
    import jsonschema
except ImportError:
    sys.exit(77)


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(json.load(sys.stdin)))
    for error in errors[:5]:
        print(f'{"/".join(map(str, error.absolute_path))}: {error.message}', file=sys.stderr)
    return 1 if errors else 0


sys.exit(main())
