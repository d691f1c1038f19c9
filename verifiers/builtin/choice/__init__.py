"""choice: the letter of a multiple-choice answer."""
