"""Hold laws against operators and models: python -m ds_laws [--law LAW]... [--fast] NAME...

The exit status is 1 where a law is broken.
"""

import argparse
import sys

from . import GENERATORS, LAWS, MODELS, first_broken, of_fast


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold laws against operators and models.")
    parser.add_argument("--law", action="append", default=[], choices=list(LAWS))
    parser.add_argument("--fast", action="store_true", help="what is held in the fast tier alone")
    parser.add_argument("names", nargs="+", choices=[*GENERATORS, *MODELS], metavar="NAME")
    args = parser.parse_args()
    print(f"with {sys.modules['dreamstream._core'].__file__}")
    broken = first_broken(args.names, args.law, *([of_fast] if args.fast else []))
    print(broken or "all laws hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
