"""Compile the scheduler: numba, with a cache where one can be written.

Every function under these decorators is plain Python on flat arrays; with
``NUMBA_DISABLE_JIT=1`` it runs uncompiled and gives the same result.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba.core import types
from numba.np import linalg

from emu.compiled_code import kept

if TYPE_CHECKING:
    from collections.abc import Callable


def _spare_scipy() -> None:
    """Keep numba from importing scipy.linalg to look for its BLAS.

    It does so before the first compiled call, in 0.2 s of the 1.4 s that simulating a
    small scenario took; nothing compiled here calls BLAS. What does, elsewhere in the
    process, still imports it when it is compiled.
    """
    known = vars(linalg).get("ensure_blas")
    if known is None or importlib.util.find_spec("scipy") is None:
        return
    linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = known


_spare_scipy()

# numba types njit by its documented options only, and the other not at all.
_njit: Any = numba.njit
_unliteral: Any = types.unliteral

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def _jit(function: _Function, **options: Any) -> _Function:
    dispatcher = _njit(
        nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options
    )(function)
    if not hasattr(dispatcher, "enable_caching"):  # NUMBA_DISABLE_JIT=1
        return function
    _forget_literals(dispatcher)
    return cast("_Function", kept(dispatcher))


def _forget_literals(dispatcher: Any) -> None:
    """Compile f(x, 0) and f(x, n) once: numba would for every literal anew.

    Inlined, a literal is a constant all the same. Saves a tenth of the compile time.
    """
    find = dispatcher.get_call_template
    dispatcher.get_call_template = lambda arguments, named: find(
        tuple(_unliteral(argument) for argument in arguments),
        {name: _unliteral(argument) for name, argument in named.items()},
    )


def compiled(function: _Function) -> _Function:
    """Compile ``function`` on its first call; the result is kept on disk."""
    return _jit(function)


def spliced(function: _Function) -> _Function:
    """Compile ``function`` as if it were written where compiled code calls it.

    For what is called in one or two places and costs more than it does: a call with
    all of layout counts references to thirty arrays, 0.3 us, and what calls a function
    that runs schedules is compiled with all of it once more, 4 s. From Python it is
    called like any compiled function.
    """
    return _jit(function, inline="always")


def inlined(function: _Function) -> _Function:
    """Compile ``function`` into its compiled callers; it must not allocate arrays.

    A call that hands over the sixty arrays of layout and state costs more than most of
    these functions do, and so does counting references to each array they touch:
    workload A took 680 us with both, 73 us without. Callable from compiled code only,
    as the wrappers for Python would take half of the compile time.
    """
    return _jit(function, forceinline=True, _nrt=False, no_cpython_wrapper=True)


def vectorised(function: _Function) -> _Function:
    """Compile as `inlined`, comparing floats several at a time: none may be NaN."""
    return _jit(
        function,
        forceinline=True,
        _nrt=False,
        no_cpython_wrapper=True,
        fastmath={"nnan", "nsz"},
    )


def hot(function: _Function) -> _Function:
    """Compile ``function`` without counting references; it must not allocate arrays."""
    return _jit(function, _nrt=False)


def apart(function: _Function) -> _Function:
    """Compile as `hot`, callable from compiled code only: what few jobs need.

    Inlined into the event loop, slots cost jobs without any 6 % of their time. To be
    given the arrays that it uses: a call with all of layout and state is 10 KB of code.
    """
    return _jit(function, _nrt=False, no_cpython_wrapper=True)
