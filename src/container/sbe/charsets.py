"""Character encodings of schemas, by the names that Java has for them: Python's codecs that read the same."""

from __future__ import annotations

import codecs
import re
from typing import Any

# Names in lower case, with letters and digits only. Left out are those that the codec reads in another way than Java.
_NAMES = {
    "ascii": "usascii 646 ansix341968 ansix341986 ascii ibm367 iso646us iso646irv1991 ascii7 cp367 csascii default"
    " isoir6 iso646irv1983 us",
    "utf-8": "utf8 unicode11utf8",
    "utf-16": "utf16 unicodebig unicode",
    "utf-16-be": "utf16be iso10646ucs2 unicodebigunmarked xutf16be",
    "utf-16-le": "utf16le unicodelittleunmarked xutf16le",
    "utf-32": "utf32",
    "utf-32-be": "utf32be xutf32be",
    "utf-32-le": "utf32le xutf32le",
    "latin-1": "iso88591 819 88591 ibm819 iso885911987 cp819 csisolatin1 isoir100 l1 latin1",
    "iso8859-2": "iso88592 88592 912 iso885921987 cp912 csisolatin2 ibm912 isoir101 l2 latin2",
    "iso8859-3": "iso88593 88593 913 iso885931988 cp913 csisolatin3 ibm913 isoir109 l3 latin3",
    "iso8859-4": "iso88594 88594 914 iso885941988 cp914 csisolatin4 ibm914 isoir110 l4 latin4",
    "iso8859-5": "iso88595 88595 915 iso885951988 cp915 csisolatincyrillic cyrillic ibm915 isoir144",
    "iso8859-6": "iso88596 1089 88596 asmo708 ecma114 iso885961987 arabic cp1089 csisolatinarabic ibm1089 isoir127",
    "iso8859-7": "iso88597 813 88597 ecma118 elot928 iso885971987 cp813 csisolatingreek greek greek8 ibm813 isoir126"
    " suneugreek",
    "iso8859-8": "iso88598 88598 916 iso885981988 cp916 csisolatinhebrew hebrew ibm916 isoir138",
    "iso8859-9": "iso88599 88599 920 iso885991989 cp920 csisolatin5 ibm920 isoir148 l5 latin5",
    "iso8859-11": "xiso885911 iso885911",
    "iso8859-13": "iso885913 885913",
    "iso8859-15": "iso885915 885915 923 ibm923 iso885915fdis l9 latin0 latin9 cp923 csiso885915 csisolatin0"
    " csisolatin9",
    "iso8859-16": "iso885916 iso8859162001 csiso885916 isoir226 l10 latin10",
    "cp1250": "windows1250 cp1250 cp5346",
    "cp1251": "windows1251 ansi1251 cp1251 cp5347",
    "cp1252": "windows1252 cp1252 cp5348 ibm1252",
    "cp1253": "windows1253 cp1253 cp5349",
    "cp1254": "windows1254 cp1254 cp5350",
    "cp1255": "windows1255 cp1255",
    "cp1256": "windows1256 cp1256",
    "cp1257": "windows1257 cp1257 cp5353",
    "cp1258": "windows1258 cp1258",
    "koi8-r": "koi8r cskoi8r koi8",
    "koi8-u": "koi8u",
    "mac-latin2": "xmaccentraleurope maccentraleurope",
    "mac-roman": "xmacroman macroman",
    "cp037": "ibm037 037 cp037 cpibm37 csebcdiccpca csebcdiccpnl csebcdiccpus csebcdiccpwt csibm037 ebcdiccpca"
    " ebcdiccpnl ebcdiccpus ebcdiccpwt ibm37",
    "cp437": "ibm437 437 cp437 cspc8codepage437 windows437",
    "cp500": "ibm500 500 cp500 csibm500 ebcdiccpbh ebcdiccpch",
    "cp737": "xibm737 737 cp737 ibm737",
    "cp775": "ibm775 775 cp775",
    "cp850": "ibm850 850 cp850 cspc850multilingual",
    "cp852": "ibm852 852 cp852 cspcp852",
    "cp855": "ibm855 855 cp855 cspcp855",
    "cp857": "ibm857 857 cp857 csibm857",
    "cp858": "ibm00858 858 pcmultilingual850euro ccsid00858 cp00858 cp858 ibm858",
    "cp860": "ibm860 860 cp860 csibm860",
    "cp861": "ibm861 861 cpis cp861 csibm861",
    "cp862": "ibm862 862 cp862 csibm862 cspc862latinhebrew",
    "cp863": "ibm863 863 cp863 csibm863",
    "cp864": "ibm864 864 cp864 csibm864",
    "cp865": "ibm865 865 cp865 csibm865",
    "cp866": "ibm866 866 cp866 csibm866",
    "cp869": "ibm869 869 cpgr cp869 csibm869",
    "cp1026": "ibm1026 1026 cp1026",
    "cp1140": "ibm01140 1140 ccsid01140 cp01140 cp1140 ebcdicus037euro ibm1140",
    "big5": "big5 csbig5",
    "big5hkscs": "big5hkscs big5hk",
    "euc_jp": "eucjp extendedunixcodepackedformatforjapanese cseucpkdfmtjapanese eucjis xeucjp",
    "euc_kr": "euckr 5601 cseuckr ksc56011987 ksc5601",
    "gb18030": "gb18030 gb180302022 gbk cp936 windows936",
    "gb2312": "gb2312 euccn gb23121980 gb231280 xeuccn",
    "shift_jis": "shiftjis csshiftjis mskanji sjis xsjis",
    "cp932": "windows31j ms932 cswindows31j windows932",
    "cp949": "xwindows949 ms949 windows949",
    "johab": "xjohab johab ksc56011992 ms1361",
}
_CODECS = {name: codec for codec, names in _NAMES.items() for name in names.split()}

# Characters that Java has for the bytes of others.
_NEWLINE, _DASH = {0x85: "\n"}, {0x2015: "\u2014"}
_BIG5 = {0x2574: "\uff3f"}
_GB18030: dict[int, int] = str.maketrans(
    "\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue7c7\ue81e\ue826\ue82b"
    "\ue82c\ue832\ue843\ue854\ue864",
    "\ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19\u1e3f\u9fb4\u9fb5\u9fb6"
    "\u9fb7\u9fb8\u9fb9\u9fba\u9fbb",
)
_AS_JAVA: dict[str, dict[int, Any]] = dict.fromkeys(("cp037", "cp500", "cp1026", "cp1140"), _NEWLINE) | dict.fromkeys(
    ("euc_jp", "shift_jis"), _DASH
)
_AS_JAVA |= {"big5": _BIG5, "big5hkscs": _BIG5, "gb18030": _GB18030}

# Byte order marks; they are not part of the text.
_MARKS = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}
_OWN_MARK = {"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}


def codec_of(name: str) -> str | None:
    """The codec of an encoding by a name that Java has, in any case and with other signs or none between the letters.

    Args:
        name: as the schema has it.

    Returns:
        The name of Python's codec; None where it has none that reads as Java does.
    """
    return _CODECS.get(re.sub(r"[\W_]", "", name.lower(), flags=re.ASCII))


def decode(codec: str, text: bytes) -> str:
    """A text as Java reads it: UTF-16 and UTF-32 without a mark are big-endian; U+FFFD replaces invalid characters.

    Args:
        codec: what :func:`codec_of` has given.
        text: its bytes.
    """
    known = codec if text.startswith(_MARKS.get(codec, b"")) else f"{codec}-be"
    return text.removeprefix(_OWN_MARK.get(codec, b"")).decode(known, "replace").translate(_AS_JAVA.get(codec, {}))


def encode(codec: str, text: str) -> bytes:
    """A text as Java writes it, with a question mark for what the encoding does not have.

    Args:
        codec: what :func:`codec_of` has given.
        text: what to write.
    """
    if codec == "utf-16":
        return codecs.BOM_UTF16_BE + text.encode("utf-16-be", "replace")
    return text.encode("utf-32-be" if codec == "utf-32" else codec, "replace")
