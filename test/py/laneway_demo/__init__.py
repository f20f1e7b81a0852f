__all__ = ['ttypes', 'constants', 'Chain']
